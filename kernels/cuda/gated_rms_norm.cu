// out = x / sqrt(mean(x^2) + eps) * weight * activation(gate), with the mean over each group of
// `width` columns.
//
//   x, gate, out [rows, cols], weight [1 or groups, width] F32
//   grid: (groups / 4, rows); block 128: a warp per group
//   moves: 12 bytes an element; the second read of x hits the cache

#include "activation.cuh"
#include "row_arguments.h"
#include "warp.cuh"

KERNEL gated_rms_norm(GatedRmsNorm a) {
  wait_for_previous_kernel();
  const u32 row = blockIdx.y, group = blockIdx.x * 4 + warp_id();
  if (row >= *a.n_rows || group >= a.cols / a.width) return;
  const u64 begin = u64(row) * a.cols + group * a.width;
  const float* weight = a.weight + (a.weight_groups == 1 ? 0 : group * a.width);

  float squares = 0;
  for (u32 i = lane_id(); i < a.width; i += kWarp) squares += a.x[begin + i] * a.x[begin + i];
  const float scale = 1.0f / sqrtf(warp_sum(squares) / float(a.width) + a.eps);

  for (u32 i = lane_id(); i < a.width; i += kWarp) {
    const float normed = a.x[begin + i] * scale * weight[i];
    a.out[begin + i] = normed * activate(a.activation, a.gate[begin + i]);
  }
}

INSTANCE(gated_rms_norm)
