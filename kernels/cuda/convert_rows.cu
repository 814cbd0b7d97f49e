// Converts activations to 16-bit floats for products on tensor cores: out = x / scale, rounded.
//
//   x [.., pieces * cols] F32, read at a set of rows; out [rows of the set, pieces, padded_cols] of
//   T, zero beyond cols; scale [rows of the set, pieces]
//   grid: (rows, pieces per row); block: whole warps, at most 1024 threads
//
// A piece with numbers near the end of F16's range is divided by a power of two, which changes no
// digit; the product is multiplied by it afterwards. Pieces are padded so that products need no
// bounds checks along K.

#include "row_set.cuh"
#include "warp.cuh"

// The largest |x| stored without scaling; F16 ends at 65504, and sums are in F32.
constexpr float kLargest = 32768.0f;

DEVICE float scale_of_row(f16, float largest) {
  if (!(largest > kLargest && largest < FORGE_INFINITY)) return 1.0f;
  // 2^n with largest / 2^n in [16384, 32768), from the exponent bits alone.
  const u32 exponent = __float_as_uint(largest) >> 23;
  return __uint_as_float((exponent - 14) << 23);
}
DEVICE float scale_of_row(bf16, float) { return 1.0f; }

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
  const float divisor = scale_of_row(T{}, block_max(largest, partial));
  const float factor = 1.0f / divisor;

  for (u32 i = threadIdx.x; i < padded_cols; i += blockDim.x) {
    convert(i < cols ? from[i] * factor : 0.0f, out[row * padded_cols + i]);
  }
  if (threadIdx.x == 0) scale[row] = divisor;
}

INSTANCE(convert_rows<f16>)
INSTANCE(convert_rows<bf16>)
