// out = cap * tanh(x / cap): Gemma 2's limit on logits.
//
//   x, out [rows, cols] F32; grid: (cols / 1024, rows); block 256, four elements a thread

#include "prelude.cuh"
#include "row_arguments.h"

KERNEL softcap(Softcap a) {
  wait_for_previous_kernel();
  const u32 row = blockIdx.y;
  if (row >= *a.n_rows) return;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= a.cols) return;
    const u64 at = u64(row) * a.cols + i;
    a.out[at] = a.cap * tanhf(a.x[at] / a.cap);
  }
}

INSTANCE(softcap)
