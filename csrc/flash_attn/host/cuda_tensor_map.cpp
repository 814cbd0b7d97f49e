#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "host/tensor_strides.h"

namespace flash_attn {

namespace {

using Encoder = PFN_cuTensorMapEncodeTiled_v12000;

// The library is not linked against the driver, so that it opens on machines without one.
Encoder find_encoder() {
  void *function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
#else
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess) cudaGetLastError();
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Encoder>(function);
}

// Makes the context of the calling thread's device current. The runtime does so in the thread's
// first call that needs a context, which a call of this library may be.
bool make_context_current() {
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess && cudaSetDevice(device) == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

}  // namespace

flash_attn_status encode_tensor_map(TensorMap &map, const TensorShape &shape) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  static const Encoder encode = find_encoder();
  if (encode == nullptr) return FLASH_ATTN_TENSOR_MAP_FAILED;
  const cuuint64_t sizes[4] = {
      static_cast<cuuint64_t>(shape.columns), static_cast<cuuint64_t>(shape.rows),
      static_cast<cuuint64_t>(shape.heads), static_cast<cuuint64_t>(shape.batches)};
  const auto strides = tensor_strides(shape);
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(shape.box_columns),
                             static_cast<cuuint32_t>(shape.box_rows), 1, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const auto swizzle =
      shape.box_columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
  // Both types are copied in the same way; an element outside the tensor becomes zero bits.
  CUtensorMap encoded;
  const auto encode_map = [&] {
    return encode(&encoded, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void *>(shape.data),
                  sizes, strides.data(), box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult result = encode_map();
  if (result == CUDA_ERROR_INVALID_CONTEXT && make_context_current()) result = encode_map();
  if (result != CUDA_SUCCESS) return FLASH_ATTN_TENSOR_MAP_FAILED;
  std::memcpy(&map, &encoded, sizeof map);
  return FLASH_ATTN_OK;
}

}  // namespace flash_attn
