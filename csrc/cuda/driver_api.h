#pragma once

// The part of the CUDA driver API that forge uses, declared here so that no toolkit is needed to
// build. Names, values and signatures are those of NVIDIA's "CUDA Driver API" reference, CUDA 11.4.

#include <cstddef>
#include <cstdint>

namespace forge::cuda {

// CUresult; names of its values are asked from the driver.
using Result = int;
constexpr Result kSuccess = 0;
constexpr Result kInvalidValue = 1;
constexpr Result kOutOfMemory = 2;
constexpr Result kNotInitialized = 3;
constexpr Result kNoDevice = 100;
constexpr Result kInvalidImage = 200;
constexpr Result kNoBinaryForGpu = 209;
constexpr Result kEccUncorrectable = 214;
constexpr Result kNvlinkUncorrectable = 220;
constexpr Result kContained = 226;
constexpr Result kNotFound = 500;
constexpr Result kIllegalAddress = 700;
constexpr Result kLaunchTimeout = 702;
constexpr Result kContextIsDestroyed = 709;
constexpr Result kAssert = 710;
constexpr Result kHardwareStackError = 714;
constexpr Result kIllegalInstruction = 715;
constexpr Result kMisalignedAddress = 716;
constexpr Result kInvalidAddressSpace = 717;
constexpr Result kInvalidPc = 718;
constexpr Result kLaunchFailed = 719;
constexpr Result kUnknownError = 999;

using DeviceOrdinal = int;
using DevicePointer = uint64_t;
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Graph = struct GraphTag*;
using GraphExec = struct GraphExecTag*;

enum class DeviceAttribute : int {
  multiprocessors = 16,
  l2_cache_bytes = 38,
  compute_major = 75,
  compute_minor = 76,
  max_shared_per_block_optin = 97,
};

enum class FunctionAttribute : int {
  static_shared_bytes = 1,
  max_dynamic_shared_bytes = 8,
};

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr int kCaptureThreadLocal = 1;
constexpr unsigned kHostAllocPortable = 1;
constexpr unsigned kMemoryTypeHost = 1;
constexpr unsigned kMemoryTypeDevice = 2;

// CUDA_MEMCPY2D.
struct Copy2D {
  size_t src_x;
  size_t src_y;
  unsigned src_type;
  const void* src_host;
  DevicePointer src_device;
  void* src_array;
  size_t src_pitch;
  size_t dst_x;
  size_t dst_y;
  unsigned dst_type;
  void* dst_host;
  DevicePointer dst_device;
  void* dst_array;
  size_t dst_pitch;
  size_t width_bytes;
  size_t height;
};

// CUtensorMap: a tensor as the copy engine of SM90 reads it. Drivers before CUDA 13 need 64 bytes.
struct alignas(128) TensorMap {
  uint64_t opaque[16];
};
constexpr int kTensorBfloat16 = 9;     // CUtensorMapDataType
constexpr int kSwizzle128Bytes = 3;    // CUtensorMapSwizzle
constexpr int kPromotion256Bytes = 3;  // CUtensorMapL2promotion

// CUlaunchAttribute, of which forge sets two: all blocks of a kernel run at once, or it may start
// while the one before it ends.
constexpr int kCooperative = 2;
constexpr int kProgrammaticSerialization = 6;
struct alignas(8) LaunchAttribute {
  int id;
  int pad;
  int value;
  int rest[15];
};

// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid_x;
  unsigned grid_y;
  unsigned grid_z;
  unsigned block_x;
  unsigned block_y;
  unsigned block_z;
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned n_attributes;
};

// Each function: its member in DriverApi, the symbol that libcuda exports, and its parameters.
#define FORGE_DRIVER_FUNCTIONS(F)                                                                 \
  F(init, cuInit, (unsigned flags))                                                               \
  F(driver_version, cuDriverGetVersion, (int* version))                                           \
  F(error_name, cuGetErrorName, (Result result, const char** text))                               \
  F(error_string, cuGetErrorString, (Result result, const char** text))                           \
  F(device_count, cuDeviceGetCount, (int* count))                                                 \
  F(device_get, cuDeviceGet, (DeviceOrdinal * device, int index))                                 \
  F(device_name, cuDeviceGetName, (char* name, int capacity, DeviceOrdinal device))               \
  F(device_attribute, cuDeviceGetAttribute,                                                       \
    (int* value, DeviceAttribute attribute, DeviceOrdinal device))                                \
  F(device_total_memory, cuDeviceTotalMem_v2, (size_t * bytes, DeviceOrdinal device))             \
  F(primary_context_retain, cuDevicePrimaryCtxRetain, (Context * context, DeviceOrdinal device))  \
  F(primary_context_release, cuDevicePrimaryCtxRelease_v2, (DeviceOrdinal device))                \
  F(context_push, cuCtxPushCurrent_v2, (Context context))                                         \
  F(context_pop, cuCtxPopCurrent_v2, (Context * context))                                         \
  F(memory_info, cuMemGetInfo_v2, (size_t * free, size_t * total))                                \
  F(memory_alloc, cuMemAlloc_v2, (DevicePointer * pointer, size_t bytes))                         \
  F(memory_free, cuMemFree_v2, (DevicePointer pointer))                                           \
  F(host_alloc, cuMemHostAlloc, (void** pointer, size_t bytes, unsigned flags))                   \
  F(host_free, cuMemFreeHost, (void* pointer))                                                    \
  F(copy_to_device, cuMemcpyHtoDAsync_v2,                                                         \
    (DevicePointer to, const void* from, size_t bytes, Stream stream))                            \
  F(copy_to_host, cuMemcpyDtoHAsync_v2,                                                           \
    (void* to, DevicePointer from, size_t bytes, Stream stream))                                  \
  F(copy_on_device, cuMemcpyDtoDAsync_v2,                                                         \
    (DevicePointer to, DevicePointer from, size_t bytes, Stream stream))                          \
  F(copy_2d, cuMemcpy2DAsync_v2, (const Copy2D* copy, Stream stream))                             \
  F(fill_bytes, cuMemsetD8Async,                                                                  \
    (DevicePointer to, unsigned char value, size_t bytes, Stream stream))                         \
  F(stream_create, cuStreamCreate, (Stream * stream, unsigned flags))                             \
  F(stream_destroy, cuStreamDestroy_v2, (Stream stream))                                          \
  F(stream_synchronize, cuStreamSynchronize, (Stream stream))                                     \
  F(event_create, cuEventCreate, (Event * event, unsigned flags))                                 \
  F(event_destroy, cuEventDestroy_v2, (Event event))                                              \
  F(event_record, cuEventRecord, (Event event, Stream stream))                                    \
  F(event_synchronize, cuEventSynchronize, (Event event))                                         \
  F(event_elapsed, cuEventElapsedTime, (float* milliseconds, Event begin, Event end))             \
  F(module_load, cuModuleLoadData, (Module * module, const void* image))                          \
  F(module_unload, cuModuleUnload, (Module module))                                               \
  F(module_function, cuModuleGetFunction,                                                         \
    (Function * function, Module module, const char* name))                                       \
  F(function_attribute, cuFuncGetAttribute,                                                       \
    (int* value, FunctionAttribute attribute, Function function))                                 \
  F(set_function_attribute, cuFuncSetAttribute,                                                   \
    (Function function, FunctionAttribute attribute, int value))                                  \
  F(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor,                                       \
    (int* blocks, Function function, int threads, size_t shared_bytes))                           \
  F(launch, cuLaunchKernel,                                                                       \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,      \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters, \
     void** extra))                                                                               \
  F(capture_begin, cuStreamBeginCapture_v2, (Stream stream, int mode))                            \
  F(capture_end, cuStreamEndCapture, (Stream stream, Graph * graph))                              \
  F(graph_instantiate, cuGraphInstantiateWithFlags,                                               \
    (GraphExec * executable, Graph graph, unsigned long long flags))                              \
  F(graph_launch, cuGraphLaunch, (GraphExec executable, Stream stream))                           \
  F(graph_exec_destroy, cuGraphExecDestroy, (GraphExec executable))                               \
  F(graph_destroy, cuGraphDestroy, (Graph graph))

// Absent from drivers before CUDA 11.8 (cuLaunchKernelEx), 12.0 and 12.4.
#define FORGE_OPTIONAL_DRIVER_FUNCTIONS(F)                                               \
  F(launch_with, cuLaunchKernelEx,                                                       \
    (const LaunchConfig* config, Function function, void** parameters, void** extra))    \
  F(encode_tensor_map, cuTensorMapEncodeTiled,                                           \
    (TensorMap * map, int type, uint32_t dimensions, void* data, const uint64_t* sizes,  \
     const uint64_t* strides, const uint32_t* box, const uint32_t* steps,                \
     int interleave, int swizzle, int promotion, int fill))                              \
  F(parameter_info, cuFuncGetParamInfo,                                                  \
    (Function function, size_t index, size_t* offset, size_t* bytes))

struct DriverApi {
#define FORGE_DRIVER_MEMBER(member, symbol, parameters) Result(*member) parameters;
  FORGE_DRIVER_FUNCTIONS(FORGE_DRIVER_MEMBER)
  FORGE_OPTIONAL_DRIVER_FUNCTIONS(FORGE_DRIVER_MEMBER)
#undef FORGE_DRIVER_MEMBER
};

}  // namespace forge::cuda
