// out[output] = x[output_rows[output]]: selects the rows that need logits.
//
//   grid: (cols / 1024, outputs); block 256, four elements a thread

#include "prelude.cuh"
#include "row_arguments.h"

KERNEL gather_outputs(ARGUMENT(GatherOutputs) a) {
  wait_for_previous_kernel();
  const u32 output = blockIdx.y;
  if (output >= *a.n_outputs) return;
  const float* from = a.x + u64(a.output_rows[output]) * a.cols;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= a.cols) return;
    a.out[u64(output) * a.cols + i] = from[i];
  }
}

INSTANCE(gather_outputs)
