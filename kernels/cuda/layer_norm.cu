// out = (x - mean) / sqrt(variance + eps) * weight + bias, for each row.
//
//   x, out [rows, cols] F32; weight, bias [cols]
//   grid: a block per row; block: whole warps, at most 1024 threads
//
// The variance is computed from the differences to the mean, in a second pass: the mean of the
// squares minus the square of the mean loses all digits if the mean is large.

#include "row_arguments.h"
#include "warp.cuh"

LARGE_KERNEL layer_norm(LayerNorm a) {
  wait_for_previous_kernel();
  SHARED(float, partial, [kWarp]);
  SHARED(float, square_partial, [kWarp]);
  const u32 row = blockIdx.x;
  if (row >= *a.n_rows) return;
  const u64 begin = u64(row) * a.cols;

  float sum = 0;
  for (u32 i = threadIdx.x; i < a.cols; i += blockDim.x) sum += a.x[begin + i];
  const float mean = block_sum(sum, partial) / float(a.cols);

  float squares = 0;
  for (u32 i = threadIdx.x; i < a.cols; i += blockDim.x) {
    const float difference = a.x[begin + i] - mean;
    squares += difference * difference;
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, square_partial) / float(a.cols) + a.eps);

  for (u32 i = threadIdx.x; i < a.cols; i += blockDim.x) {
    const float normed = (a.x[begin + i] - mean) * scale * a.weight[i];
    a.out[begin + i] = a.has_bias ? normed + a.bias[i] : normed;
  }
}

INSTANCE(layer_norm)
