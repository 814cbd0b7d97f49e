#include "host/runtime.h"

namespace flash_attn {

namespace {

int32_t attribute(cudaDeviceAttr name, int device, cudaError_t &error) {
  int value = 0;
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&value, name, device);
  return value;
}

}  // namespace

flash_attn_status query_device(Device &device) {
  int number = 0;
  cudaError_t error = cudaGetDevice(&number);
  device.major = attribute(cudaDevAttrComputeCapabilityMajor, number, error);
  device.minor = attribute(cudaDevAttrComputeCapabilityMinor, number, error);
  device.multiprocessors = attribute(cudaDevAttrMultiProcessorCount, number, error);
  device.l2_bytes = attribute(cudaDevAttrL2CacheSize, number, error);
  device.shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, number, error);
  int driver = 0;
  if (error == cudaSuccess) error = cudaDriverGetVersion(&driver);
  // From 12.3 on, such launches can be captured in graphs.
  device.dependent_launches = device.major >= 9 && driver >= 12030;
  if (error != cudaSuccess) {
    cudaGetLastError();
    return FLASH_ATTN_NO_DEVICE;
  }
  return device.major >= 8 ? FLASH_ATTN_OK : FLASH_ATTN_UNSUPPORTED_DEVICE;
}

flash_attn_status clear_memory(void *memory, size_t bytes, void *stream) {
  if (cudaMemsetAsync(memory, 0, bytes, static_cast<cudaStream_t>(stream)) == cudaSuccess) {
    return FLASH_ATTN_OK;
  }
  cudaGetLastError();
  return FLASH_ATTN_LAUNCH_FAILED;
}

}  // namespace flash_attn
