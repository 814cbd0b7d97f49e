// out = x / sqrt(mean(x^2) + eps) * weight * activation(gate), with the mean over each group of
// `width` columns.
//
//   x, gate, out [rows, cols], weight [width] F32
//   grid: (groups / 4, rows); block 128: a warp per group
//   moves: 12 bytes an element; the second read of x hits the cache

#include "activation.cuh"
#include "warp.cuh"

KERNEL gated_rms_norm(float* out, const float* x, const float* gate, const float* weight,
                      const u32* n_rows, u32 cols, u32 width, float eps, u32 activation) {
  wait_for_previous_kernel();
  const u32 row = blockIdx.y, group = blockIdx.x * 4 + warp_id();
  if (row >= *n_rows || group >= cols / width) return;
  const u64 begin = u64(row) * cols + group * width;

  float squares = 0;
  for (u32 i = lane_id(); i < width; i += kWarp) squares += x[begin + i] * x[begin + i];
  const float scale = 1.0f / sqrtf(warp_sum(squares) / float(width) + eps);

  for (u32 i = lane_id(); i < width; i += kWarp) {
    out[begin + i] = x[begin + i] * scale * weight[i] * activate(activation, gate[begin + i]);
  }
}

INSTANCE(gated_rms_norm)
