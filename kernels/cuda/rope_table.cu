// The angles of rotary embedding, once per step: out[token] = scale * (cos[n] | sin[n]) of
// position * inv_freq[i].
//
//   grid: a block per token; block: any
//
// The angle is first rounded to float, as in training; sine and cosine then reduce it in full
// precision (positions reach 10^5 radians).

#include "prelude.cuh"
#include "row_arguments.h"

KERNEL rope_table(ARGUMENT(RopeTable) a) {
  wait_for_previous_kernel();
  const u32 token = blockIdx.x;
  if (token >= *a.n_tokens) return;
  float* row = a.out + u64(token) * 2 * a.n_freqs;
  for (u32 i = threadIdx.x; i < a.n_freqs; i += blockDim.x) {
    const float angle = float(a.positions[token]) * a.inv_freq[i];
    row[i] = cosf(angle) * a.scale;
    row[a.n_freqs + i] = sinf(angle) * a.scale;
  }
}

INSTANCE(rope_table)
