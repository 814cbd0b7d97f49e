// out[output] = x[output_rows[output]]: selects the rows that need logits.
//
//   grid: (cols / 1024, outputs); block 256, four elements a thread

#include "prelude.cuh"

KERNEL gather_outputs(float* out, const float* x, const i32* output_rows, const u32* n_outputs,
                      u32 cols) {
  wait_for_previous_kernel();
  const u32 output = blockIdx.y;
  if (output >= *n_outputs) return;
  const float* from = x + u64(output_rows[output]) * cols;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= cols) return;
    out[u64(output) * cols + i] = from[i];
  }
}

INSTANCE(gather_outputs)
