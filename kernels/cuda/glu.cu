// out = activation(gate) * up, for rows that are groups of (gate[width] | up[width]): the gated
// unit of LLaMA (SiLU), Gemma (GELU) and gpt-oss. With several groups, those of a token's experts.
//
//   x [rows, 2 * out_cols], out [rows, out_cols] F32
//   grid: (out_cols / 1024, rows); block 256, four elements a thread
//   moves: 12 bytes an output

#include "activation.cuh"
#include "row_arguments.h"

KERNEL glu(Glu a) {
  wait_for_previous_kernel();
  const u32 row = blockIdx.y;
  if (row >= *a.n_rows) return;
  const float* from = a.x + u64(row) * 2 * a.out_cols;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= a.out_cols) return;
    const u32 gate = i / a.width * 2 * a.width + i % a.width;
    a.out[u64(row) * a.out_cols + i] = gated_unit(a.unit, from[gate], from[gate + a.width]);
  }
}

INSTANCE(glu)
