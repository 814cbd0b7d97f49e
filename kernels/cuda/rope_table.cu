// The angles of rotary embedding, once per step: out[token] = scale * (cos[n] | sin[n]) of
// position * inv_freq[i].
//
//   grid: a block per token; block: any
//
// The angle is first rounded to float, as in training; sine and cosine then reduce it in full
// precision (positions reach 10^5 radians).

#include "prelude.cuh"

KERNEL rope_table(float* out, const i32* positions, const float* inv_freq, const u32* n_tokens,
                  u32 n, float scale) {
  wait_for_previous_kernel();
  const u32 token = blockIdx.x;
  if (token >= *n_tokens) return;
  float* row = out + u64(token) * 2 * n;
  for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
    const float angle = float(positions[token]) * inv_freq[i];
    row[i] = cosf(angle) * scale;
    row[n + i] = sinf(angle) * scale;
  }
}

INSTANCE(rope_table)
