// Kernel launches through the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "flash_attn.h"
#include "host/launch_shape.h"

namespace flash_attn {

template <class Args>
flash_attn_status launch(void (*kernel)(Args), const LaunchShape &shape, void *stream,
                         const Args &args) {
  const void *const function = reinterpret_cast<const void *>(kernel);
  // More than 48 KiB requires this attribute.
  cudaError_t error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           shape.shared_bytes);
  if (error == cudaSuccess) {
    void *arguments[] = {const_cast<Args *>(&args)};
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(shape.x, shape.y, shape.z);
    config.blockDim = dim3(shape.threads);
    config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &attribute;
    config.numAttrs = shape.dependent ? 1 : 0;
    error = cudaLaunchKernelExC(&config, function, arguments);
  }
  if (error == cudaSuccess) return FLASH_ATTN_OK;
  // Clear the error, which is reported here; later calls of the runtime must not return it.
  cudaGetLastError();
  return error == cudaErrorNoKernelImageForDevice ? FLASH_ATTN_UNSUPPORTED_DEVICE
                                                  : FLASH_ATTN_LAUNCH_FAILED;
}

}  // namespace flash_attn
