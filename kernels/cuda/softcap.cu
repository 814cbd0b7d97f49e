// out = cap * tanh(x / cap): Gemma 2's limit on logits.
//
//   x, out [rows, cols] F32; grid: that of for_each_number

#include "prelude.cuh"
#include "row_arguments.h"

KERNEL softcap(Softcap a) {
  for_each_number(a.n_rows, a.cols, [&](u64 row, u32 i) {
    const u64 at = row * a.cols + i;
    a.out[at] = a.cap * tanhf(a.x[at] / a.cap);
  });
}

INSTANCE(softcap)
