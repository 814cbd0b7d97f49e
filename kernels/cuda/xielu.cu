// out = beta * x + (x > 0 ? alpha_p * x^2 : alpha_n * (exp(min(x, eps)) - 1 - x)): the activation
// of Apertus, xIELU. A. Huang and I. Schlag, arXiv:2411.13010.
//
//   x, out [rows, cols] F32; grid: that of for_each_number

#include "prelude.cuh"
#include "row_arguments.h"

KERNEL xielu(Xielu a) {
  for_each_number(a.n_rows, a.cols, [&](u64 row, u32 i) {
    const u64 at = row * a.cols + i;
    const float x = a.x[at];
    const float bent = x > 0 ? a.alpha_p * x * x : a.alpha_n * (expm1f(fminf(x, a.eps)) - x);
    a.out[at] = bent + a.beta * x;
  });
}

INSTANCE(xielu)
