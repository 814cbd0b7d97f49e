// out = beta * x + (x > 0 ? alpha_p * x^2 : alpha_n * (exp(min(x, eps)) - 1 - x)): the activation
// of Apertus, xIELU. A. Huang and I. Schlag, arXiv:2411.13010. Buffers: row_arguments.h.

#include "prelude.h"

// exp(x) - 1, exact near 0, where MSL has no function for it. 2 tanh(x / 2) / (1 - tanh(x / 2)).
inline float exp_minus_1(float x) {
  const float t = precise::tanh(0.5f * x);
  return 2.0f * t / (1.0f - t);
}

kernel void xielu(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
                  device const uint* n_rows [[buffer(2)]], constant XieluArgs& args [[buffer(3)]],
                  uint2 at [[threadgroup_position_in_grid]],
                  uint thread_index [[thread_index_in_threadgroup]]) {
  const uint row = at.y, cols = args.cols;
  if (row >= *n_rows) return;
  for (uint i = at.x * kRowElements + thread_index; i < min(cols, (at.x + 1) * kRowElements);
       i += 256) {
    const ulong element = ulong(row) * cols + i;
    const float value = x[element];
    const float bent = value > 0 ? args.alpha_p * value * value
                                 : args.alpha_n * (exp_minus_1(fmin(value, args.eps)) - value);
    out[element] = bent + args.beta * value;
  }
}
