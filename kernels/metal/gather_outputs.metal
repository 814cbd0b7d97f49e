// out[output] = x[output_rows[output]]: selects the rows that need logits. Buffers and geometry:
// arguments.h.

#include "prelude.h"

kernel void gather_outputs(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
                           device const int* output_rows [[buffer(2)]],
                           device const uint* n_outputs [[buffer(3)]],
                           constant GatherOutputsArgs& args [[buffer(4)]],
                           uint2 at [[threadgroup_position_in_grid]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
  const uint output = at.y, cols = args.cols;
  if (output >= *n_outputs) return;
  device const float* from = x + ulong(uint(output_rows[output])) * cols;
  for (uint i = at.x * kRowElements + thread_index; i < min(cols, (at.x + 1) * kRowElements);
       i += 256) {
    out[ulong(output) * cols + i] = from[i];
  }
}
