// out = residual + x / sqrt(mean(x^2) + eps) * (weight + offset), for each group of a row.
//
//   x, out, residual [rows, groups, cols] F32 ; weight [1 or groups, cols]
//   grid: (rows, groups), blocks for rows beyond *n_rows exit; block: whole warps, at most 1024
//   threads
//   moves: 8 to 12 bytes an element; the second read of x hits the cache
//
// Each thread sums the squares of every blockDim-th element; the block adds the sums. B. Zhang and
// R. Sennrich, "Root Mean Square Layer Normalization", 2019.

#include "row_arguments.h"
#include "warp.cuh"

LARGE_KERNEL rms_norm(ARGUMENT(RmsNorm) a) {
  wait_for_previous_kernel();
  SHARED(float, partial, [kWarp]);
  const u32 row = blockIdx.x;
  if (row >= *a.n_rows) return;
  const u64 begin = (u64(row) * gridDim.y + blockIdx.y) * a.cols;
  const float* weight = a.weight + (a.weight_groups == 1 ? 0 : blockIdx.y * a.cols);

  float squares = 0;
  for (u32 i = threadIdx.x; i < a.cols; i += blockDim.x) {
    squares += a.x[begin + i] * a.x[begin + i];
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, partial) / float(a.cols) + a.eps);

  for (u32 i = threadIdx.x; i < a.cols; i += blockDim.x) {
    const float normed = a.x[begin + i] * scale * (weight[i] + a.offset);
    a.out[begin + i] = a.has_residual ? a.residual[begin + i] + normed : normed;
  }
}

INSTANCE(rms_norm)
