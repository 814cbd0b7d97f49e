// The angles of rotary embedding, once per step: out[token] = scale * (cos[n] | sin[n]) of
// position * inv_freq[i]. Buffers and geometry: arguments.h.
//
// The angle is first rounded to float, as in training; sine and cosine then reduce it in full
// precision (positions reach 10^5 radians).

#include "prelude.h"

kernel void rope_table(device float* out [[buffer(0)]], device const int* positions [[buffer(1)]],
                       device const float* inv_freq [[buffer(2)]],
                       device const uint* n_tokens [[buffer(3)]],
                       constant RopeTableArgs& args [[buffer(4)]],
                       uint token [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]]) {
  if (token >= *n_tokens) return;
  const uint n = args.n_freqs;
  device float* row = out + ulong(token) * 2 * n;
  for (uint i = thread_index; i < n; i += 128) {
    const float angle = float(positions[token]) * inv_freq[i];
    row[i] = precise::cos(angle) * args.scale;
    row[n + i] = precise::sin(angle) * args.scale;
  }
}
