// out = residual + sigmoid(gate) * x; each column of gate applies to cols / gates neighbouring
// columns of x. Buffers and geometry: state_arguments.h.

#include "prelude.h"

kernel void sigmoid_gate(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
                         device const float* gate [[buffer(2)]],
                         device const float* residual [[buffer(3)]],
                         device const uint* n_rows [[buffer(4)]],
                         constant SigmoidGateArgs& args [[buffer(5)]],
                         uint2 at [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]]) {
  const uint row = at.y;
  if (row >= *n_rows) return;
  const uint cols = args.cols, width = cols / args.gates;
  for (uint i = at.x * kRowElements + thread_index; i < min(cols, (at.x + 1) * kRowElements);
       i += 256) {
    const ulong place = ulong(row) * cols + i;
    const float by = gate[ulong(row) * args.gates + i / width];
    const float gated = x[place] / (1.0f + precise::exp(-by));
    out[place] = args.has_residual != 0 ? residual[place] + gated : gated;
  }
}
