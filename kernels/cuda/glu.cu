// out = activation(gate) * up, for rows that are groups of (gate[width] | up[width]): the gated
// unit of LLaMA (SiLU), Gemma (GELU) and gpt-oss. With several groups, those of a token's experts.
//
//   x [rows, 2 * out_cols], out [rows, out_cols] F32
//   grid: that of for_each_number
//   moves: 12 bytes an output

#include "activation.cuh"
#include "row_arguments.h"

KERNEL glu(ARGUMENT(Glu) a) {
  for_each_number(a.n_rows, a.out_cols, [&](u64 row, u32 i) {
    const float* from = a.x + row * 2 * a.out_cols;
    const u32 gate = i / a.width * 2 * a.width + i % a.width;
    a.out[row * a.out_cols + i] = gated_unit(a.unit, from[gate], from[gate + a.width]);
  });
}

INSTANCE(glu)
