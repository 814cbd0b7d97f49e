// Compares csrc/cuda/driver_api.h with NVIDIA's own header: compiles if each function has the
// signature that cuda.h gives its symbol, and each constant and struct member agrees with cuda.h.

#include <cuda.h>

#include <cstddef>

#include "driver_api.h"
#include "same_shape.h"

namespace cuda = forge::cuda;

// cuda.h renames each function to the symbol of its newest version by default; `symbol` is declared
// only if it is that symbol.
#define SAME_FUNCTION(member, symbol, parameters)                              \
  static_assert(header_test::same_shape<decltype(cuda::DriverApi::member),     \
                                        decltype(&::symbol)>(),                \
                #symbol " has other parameters");
FORGE_DRIVER_FUNCTIONS(SAME_FUNCTION)
#if CUDA_VERSION >= 12040
FORGE_OPTIONAL_DRIVER_FUNCTIONS(SAME_FUNCTION)
#endif

#define SAME_VALUE(ours, theirs) \
  static_assert(static_cast<long long>(cuda::ours) == static_cast<long long>(theirs), #theirs)
SAME_VALUE(kSuccess, CUDA_SUCCESS);
SAME_VALUE(kInvalidValue, CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
SAME_VALUE(kNoDevice, CUDA_ERROR_NO_DEVICE);
SAME_VALUE(kInvalidImage, CUDA_ERROR_INVALID_IMAGE);
SAME_VALUE(kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME_VALUE(kEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME_VALUE(kNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE);
#if CUDA_VERSION >= 13000
SAME_VALUE(kContained, CUDA_ERROR_CONTAINED);
#endif
SAME_VALUE(kNotFound, CUDA_ERROR_NOT_FOUND);
SAME_VALUE(kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME_VALUE(kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME_VALUE(kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME_VALUE(kHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME_VALUE(kAssert, CUDA_ERROR_ASSERT);
SAME_VALUE(kIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION);
SAME_VALUE(kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
SAME_VALUE(kInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE);
SAME_VALUE(kInvalidPc, CUDA_ERROR_INVALID_PC);
SAME_VALUE(kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
SAME_VALUE(kUnknownError, CUDA_ERROR_UNKNOWN);
SAME_VALUE(DeviceAttribute::multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(DeviceAttribute::l2_cache_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME_VALUE(DeviceAttribute::compute_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(DeviceAttribute::compute_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(DeviceAttribute::max_shared_per_block_optin,
           CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME_VALUE(FunctionAttribute::static_shared_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME_VALUE(FunctionAttribute::max_dynamic_shared_bytes,
           CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_VALUE(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
SAME_VALUE(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
SAME_VALUE(kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME_VALUE(kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
SAME_VALUE(kMemoryTypeHost, CU_MEMORYTYPE_HOST);
SAME_VALUE(kMemoryTypeDevice, CU_MEMORYTYPE_DEVICE);

SAME_VALUE(kTensorBfloat16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME_VALUE(kSwizzle128Bytes, CU_TENSOR_MAP_SWIZZLE_128B);
SAME_VALUE(kPromotion256Bytes, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
static_assert(sizeof(cuda::TensorMap) == sizeof(CUtensorMap));
static_assert(alignof(cuda::TensorMap) >= alignof(CUtensorMap));

#define SAME_MEMBER(ours, theirs)                                                     \
  static_assert(offsetof(cuda::Copy2D, ours) == offsetof(CUDA_MEMCPY2D, theirs) &&     \
                    sizeof(cuda::Copy2D::ours) == sizeof(CUDA_MEMCPY2D::theirs),       \
                "CUDA_MEMCPY2D::" #theirs)
SAME_MEMBER(src_x, srcXInBytes);
SAME_MEMBER(src_y, srcY);
SAME_MEMBER(src_type, srcMemoryType);
SAME_MEMBER(src_host, srcHost);
SAME_MEMBER(src_device, srcDevice);
SAME_MEMBER(src_array, srcArray);
SAME_MEMBER(src_pitch, srcPitch);
SAME_MEMBER(dst_x, dstXInBytes);
SAME_MEMBER(dst_y, dstY);
SAME_MEMBER(dst_type, dstMemoryType);
SAME_MEMBER(dst_host, dstHost);
SAME_MEMBER(dst_device, dstDevice);
SAME_MEMBER(dst_array, dstArray);
SAME_MEMBER(dst_pitch, dstPitch);
SAME_MEMBER(width_bytes, WidthInBytes);
SAME_MEMBER(height, Height);
static_assert(sizeof(cuda::Copy2D) == sizeof(CUDA_MEMCPY2D));

#define SAME_LAUNCH_MEMBER(ours, theirs)                                                       \
  static_assert(offsetof(cuda::LaunchConfig, ours) == offsetof(CUlaunchConfig, theirs) &&      \
                    sizeof(cuda::LaunchConfig::ours) == sizeof(CUlaunchConfig::theirs),        \
                "CUlaunchConfig::" #theirs)
SAME_LAUNCH_MEMBER(grid_x, gridDimX);
SAME_LAUNCH_MEMBER(grid_y, gridDimY);
SAME_LAUNCH_MEMBER(grid_z, gridDimZ);
SAME_LAUNCH_MEMBER(block_x, blockDimX);
SAME_LAUNCH_MEMBER(block_y, blockDimY);
SAME_LAUNCH_MEMBER(block_z, blockDimZ);
SAME_LAUNCH_MEMBER(shared_bytes, sharedMemBytes);
SAME_LAUNCH_MEMBER(stream, hStream);
SAME_LAUNCH_MEMBER(attributes, attrs);
SAME_LAUNCH_MEMBER(n_attributes, numAttrs);
static_assert(sizeof(cuda::LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(header_test::same_shape<cuda::LaunchAttribute, CUlaunchAttribute>());
static_assert(offsetof(cuda::LaunchAttribute, id) == offsetof(CUlaunchAttribute, id));
static_assert(offsetof(cuda::LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
SAME_VALUE(kProgrammaticSerialization, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
