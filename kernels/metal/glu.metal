// out = activation(gate) * up, for rows that are groups of (gate[width] | up[width]): the gated
// unit of LLaMA (SiLU), Gemma (GELU) and gpt-oss. With several groups, those of a token's experts.
// Buffers and geometry: arguments.h.

#include "activation.h"

kernel void glu(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
                device const uint* n_rows [[buffer(2)]], constant GluArgs& args [[buffer(3)]],
                uint2 at [[threadgroup_position_in_grid]],
                uint thread_index [[thread_index_in_threadgroup]]) {
  const uint row = at.y;
  if (row >= *n_rows) return;
  const uint out_cols = args.out_cols, width = args.width;
  device const float* from = x + ulong(row) * 2 * out_cols;
  for (uint i = at.x * kRowElements + thread_index; i < min(out_cols, (at.x + 1) * kRowElements);
       i += 256) {
    const uint gate = i / width * 2 * width + i % width;
    out[ulong(row) * out_cols + i] = gated_unit(args.unit, from[gate], from[gate + width]);
  }
}
