// out = x clamped to [-limit, limit]: OLMoE's limit on queries, keys and values. NaN stays NaN.
//
//   x, out [rows, cols] F32; grid: (cols / 1024, rows); block 256, four elements a thread

#include "prelude.cuh"

KERNEL clamp_values(float* out, const float* x, const u32* n_rows, u32 cols, float limit) {
  wait_for_previous_kernel();
  const u32 row = blockIdx.y;
  if (row >= *n_rows) return;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= cols) return;
    const u64 at = u64(row) * cols + i;
    const float value = x[at];
    out[at] = value > limit ? limit : value < -limit ? -limit : value;
  }
}

INSTANCE(clamp_values)
