// out = residual + x / sqrt(mean(x^2) + eps) * (weight + offset), for each group of a row.
//
//   x, out, residual [rows, groups, cols] F32 (residual may be null); weight [cols]
//   grid: (rows, groups), blocks for rows beyond *n_rows exit; block: whole warps, at most 1024
//   threads
//   moves: 8 to 12 bytes an element; the second read of x hits the cache
//
// Each thread sums the squares of every blockDim-th element; the block adds the sums. B. Zhang and
// R. Sennrich, "Root Mean Square Layer Normalization", 2019.

#include "warp.cuh"

LARGE_KERNEL rms_norm(float* out, const float* x, const float* weight, const float* residual,
                      const u32* n_rows, u32 cols, float eps, float offset) {
  wait_for_previous_kernel();
  SHARED(float, partial, [kWarp]);
  const u32 row = blockIdx.x;
  if (row >= *n_rows) return;
  const u64 begin = (u64(row) * gridDim.y + blockIdx.y) * cols;

  float squares = 0;
  for (u32 i = threadIdx.x; i < cols; i += blockDim.x) squares += x[begin + i] * x[begin + i];
  const float scale = 1.0f / sqrtf(block_sum(squares, partial) / float(cols) + eps);

  for (u32 i = threadIdx.x; i < cols; i += blockDim.x) {
    const float normed = x[begin + i] * scale * (weight[i] + offset);
    out[begin + i] = residual ? residual[begin + i] + normed : normed;
  }
}

INSTANCE(rms_norm)
