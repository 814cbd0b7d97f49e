// Converts activations to 16-bit floats for products on tensor cores: out = x / scale, rounded.
//
//   out is zero beyond cols
//   grid: (rows, pieces per row); block: whole warps, at most 1024 threads
//
// A piece is divided by the power of two that moves it into the range of F16 (activation.cuh), which
// changes no digit; the product is multiplied by it afterwards. Pieces are padded so that products
// need no bounds checks along K.

#include "activation.cuh"
#include "row_set.cuh"
#include "warp.cuh"

template <class T>
KERNEL convert_rows(ConvertRows a) {
  wait_for_previous_kernel();
  SHARED(float, partial, [kWarp]);
  if (blockIdx.x >= *a.set.count) return;
  const u64 row = u64(blockIdx.x) * gridDim.y + blockIdx.y;
  const float* from = a.x + (u64(row_of_set(a.set, blockIdx.x)) * gridDim.y + blockIdx.y) * a.cols;
  T* to = static_cast<T*>(a.out) + row * a.padded_cols;

  float largest = 0;
  for (u32 i = threadIdx.x; i < a.cols; i += blockDim.x) largest = fmaxf(largest, fabsf(from[i]));
  const float divisor = divisor_of_row(T{}, block_max(largest, partial));
  const float factor = 1.0f / divisor;

  for (u32 i = threadIdx.x; i < a.padded_cols; i += blockDim.x) {
    convert(i < a.cols ? from[i] * factor : 0.0f, to[i]);
  }
  if (threadIdx.x == 0) a.scale[row] = divisor;
}

INSTANCE(convert_rows<f16>)
INSTANCE(convert_rows<bf16>)
