// out = x clamped to [-limit, limit]: OLMoE's limit on queries, keys and values. NaN stays NaN.
//
//   x, out [rows, cols] F32; grid: that of for_each_number

#include "prelude.cuh"
#include "row_arguments.h"

KERNEL clamp_values(Clamp a) {
  for_each_number(a.n_rows, a.cols, [&](u64 row, u32 i) {
    const u64 at = row * a.cols + i;
    const float value = a.x[at];
    a.out[at] = value > a.limit ? a.limit : value < -a.limit ? -a.limit : value;
  });
}

INSTANCE(clamp_values)
