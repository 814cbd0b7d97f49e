// out = x clamped to [-limit, limit]: OLMoE's limit on queries, keys and values. NaN stays NaN.
//
//   x, out [rows, cols] F32; grid: (cols / 1024, rows); block 256, four elements a thread

#include "prelude.cuh"
#include "row_arguments.h"

KERNEL clamp_values(Clamp a) {
  wait_for_previous_kernel();
  const u32 row = blockIdx.y;
  if (row >= *a.n_rows) return;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= a.cols) return;
    const u64 at = u64(row) * a.cols + i;
    const float value = a.x[at];
    a.out[at] = value > a.limit ? a.limit : value < -a.limit ? -a.limit : value;
  }
}

INSTANCE(clamp_values)
