// out = (x - mean) / sqrt(variance + eps) * weight + bias, for each row.
//
//   x, out [rows, cols] F32; weight, bias [cols], bias may be null
//   grid: a block per row; block: whole warps, at most 1024 threads
//
// The variance is computed from the differences to the mean, in a second pass: the mean of the
// squares minus the square of the mean loses all digits if the mean is large.

#include "warp.cuh"

LARGE_KERNEL layer_norm(float* out, const float* x, const float* weight, const float* bias,
                        const u32* n_rows, u32 cols, float eps) {
  wait_for_previous_kernel();
  SHARED(float, partial, [kWarp]);
  SHARED(float, square_partial, [kWarp]);
  const u32 row = blockIdx.x;
  if (row >= *n_rows) return;
  const u64 begin = u64(row) * cols;

  float sum = 0;
  for (u32 i = threadIdx.x; i < cols; i += blockDim.x) sum += x[begin + i];
  const float mean = block_sum(sum, partial) / float(cols);

  float squares = 0;
  for (u32 i = threadIdx.x; i < cols; i += blockDim.x) {
    const float difference = x[begin + i] - mean;
    squares += difference * difference;
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, square_partial) / float(cols) + eps);

  for (u32 i = threadIdx.x; i < cols; i += blockDim.x) {
    const float normed = (x[begin + i] - mean) * scale * weight[i];
    out[begin + i] = bias ? normed + bias[i] : normed;
  }
}

INSTANCE(layer_norm)
