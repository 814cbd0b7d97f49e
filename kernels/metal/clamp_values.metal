// out = x clamped to [-limit, limit]: OLMoE's limit on queries, keys and values. NaN stays NaN.
// Buffers and geometry: arguments.h.

#include "prelude.h"

kernel void clamp_values(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
                         device const uint* n_rows [[buffer(2)]],
                         constant ClampArgs& args [[buffer(3)]],
                         uint2 at [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]]) {
  const uint row = at.y, cols = args.cols;
  if (row >= *n_rows) return;
  for (uint i = at.x * kRowElements + thread_index; i < min(cols, (at.x + 1) * kRowElements);
       i += 256) {
    const ulong element = ulong(row) * cols + i;
    const float value = x[element];
    out[element] = value > args.limit ? args.limit : value < -args.limit ? -args.limit : value;
  }
}
