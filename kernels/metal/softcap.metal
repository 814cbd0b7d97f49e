// out = cap * tanh(x / cap): Gemma 2's limit on logits. Buffers and geometry: arguments.h.

#include "prelude.h"

kernel void softcap(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
                    device const uint* n_rows [[buffer(2)]],
                    constant SoftcapArgs& args [[buffer(3)]],
                    uint2 at [[threadgroup_position_in_grid]],
                    uint thread_index [[thread_index_in_threadgroup]]) {
  const uint row = at.y, cols = args.cols;
  if (row >= *n_rows) return;
  for (uint i = at.x * kRowElements + thread_index; i < min(cols, (at.x + 1) * kRowElements);
       i += 256) {
    const ulong element = ulong(row) * cols + i;
    out[element] = args.cap * precise::tanh(x[element] / args.cap);
  }
}
