// out = the columns of x in another order, or in an order per chosen expert. Buffers and geometry:
// arguments.h.

#include "prelude.h"

kernel void permute_columns(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
                            device const float* order [[buffer(2)]],
                            device const float* route [[buffer(3)]],
                            device const uint* n_rows [[buffer(4)]],
                            constant PermuteColumnsArgs& args [[buffer(5)]],
                            uint2 at [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]]) {
  const uint row = at.y, cols = args.cols, out_cols = args.out_cols;
  if (row >= *n_rows) return;
  for (uint i = at.x * kRowElements + thread_index; i < min(out_cols, (at.x + 1) * kRowElements);
       i += 256) {
    const uint k = i / cols;
    uint expert = 0;
    if (args.routed != 0) expert = uint(route[ulong(row) * 2 * (out_cols / cols) + k]);
    const uint column = uint(order[ulong(expert) * cols + i % cols]);
    const uint first = args.x_cols == cols ? 0 : k * cols;
    out[ulong(row) * out_cols + i] = x[ulong(row) * args.x_cols + first + column];
  }
}
