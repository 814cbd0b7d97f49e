// Converts activations to 16-bit floats for products on tensor cores: out = x / scale, rounded.
//
//   x [.., pieces * cols] F32, read at a set of rows; out [rows of the set, pieces, padded_cols] of
//   T, zero beyond cols; scale [rows of the set, pieces]
//   grid: (rows, pieces per row); block: whole warps, at most 1024 threads
//
// A piece is divided by the power of two that moves it into the range of F16 (activation.cuh), which
// changes no digit; the product is multiplied by it afterwards. Pieces are padded so that products
// need no bounds checks along K.

#include "activation.cuh"
#include "row_set.cuh"
#include "warp.cuh"

template <class T>
KERNEL convert_rows(T* out, float* scale, const float* x, RowSet set, u32 cols,
                    u32 padded_cols) {
  wait_for_previous_kernel();
  SHARED(float, partial, [kWarp]);
  if (blockIdx.x >= *set.count) return;
  const u64 row = u64(blockIdx.x) * gridDim.y + blockIdx.y;
  const float* from = x + (u64(row_of_set(set, blockIdx.x)) * gridDim.y + blockIdx.y) * cols;

  float largest = 0;
  for (u32 i = threadIdx.x; i < cols; i += blockDim.x) largest = fmaxf(largest, fabsf(from[i]));
  const float divisor = divisor_of_row(T{}, block_max(largest, partial));
  const float factor = 1.0f / divisor;

  for (u32 i = threadIdx.x; i < padded_cols; i += blockDim.x) {
    convert(i < cols ? from[i] * factor : 0.0f, out[row * padded_cols + i]);
  }
  if (threadIdx.x == 0) scale[row] = divisor;
}

INSTANCE(convert_rows<f16>)
INSTANCE(convert_rows<bf16>)
