// out = residual + sum over a token's experts of weight * x[expert]. Buffers and geometry:
// arguments.h.

#include "prelude.h"

kernel void moe_combine(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
                        device const float* route [[buffer(2)]],
                        device const float* residual [[buffer(3)]],
                        device const uint* n_tokens [[buffer(4)]],
                        constant MoeCombineArgs& args [[buffer(5)]],
                        uint2 at [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]]) {
  const uint token = at.y, cols = args.cols, top_k = args.top_k;
  if (token >= *n_tokens) return;
  device const float* weights = route + (ulong(token) * 2 + 1) * top_k;
  for (uint i = at.x * kRowElements + thread_index; i < min(cols, (at.x + 1) * kRowElements);
       i += 256) {
    const ulong element = ulong(token) * cols + i;
    float sum = args.has_residual != 0 ? residual[element] : 0.0f;
    for (uint k = 0; k < top_k; ++k) sum += weights[k] * x[(ulong(token) * top_k + k) * cols + i];
    out[element] = sum;
  }
}
