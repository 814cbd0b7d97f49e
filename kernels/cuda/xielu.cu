// out = beta * x + (x > 0 ? alpha_p * x^2 : alpha_n * (exp(min(x, eps)) - 1 - x)): the activation of
// Apertus, xIELU. A. Huang and I. Schlag, arXiv:2411.13010.
//
//   x, out [rows, cols] F32; grid: (cols / 1024, rows); block 256, four elements a thread

#include "prelude.cuh"
#include "row_arguments.h"

KERNEL xielu(Xielu a) {
  wait_for_previous_kernel();
  const u32 row = blockIdx.y;
  if (row >= *a.n_rows) return;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= a.cols) return;
    const u64 at = u64(row) * a.cols + i;
    const float x = a.x[at];
    const float bent = x > 0 ? a.alpha_p * x * x : a.alpha_n * (expm1f(fminf(x, a.eps)) - x);
    a.out[at] = bent + a.beta * x;
  }
}

INSTANCE(xielu)
