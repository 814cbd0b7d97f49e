// Prepares attention from the product of Q, K and V in one launch: splits each token's row into
// heads, normalizes and rotates q and k, appends k and v to the sequence's page and to those of
// branches, and writes q.
//
//   qkv [tokens, n_heads * k_dim | n_kv_heads * k_dim | n_kv_heads * v_dim] F32
//   q   [tokens, n_heads * k_dim] F32; rope [tokens, 2 * n_freqs] of rope_table
//   grid: (tokens, n_heads + 2 * n_kv_heads): a block per head, queries first, then keys, then
//   values. Where values are in the keys, values have no columns and no blocks.
//   block 128; dynamic shared: max(k_dim, v_dim) * 4 bytes, the head
//
// RMSNorm is over the head if the norm's weight has the width of a head (Qwen 3, Gemma 3), else
// over all heads at once (OLMo 2): then every block sums the squares of all heads, from the cache.
// RoPE: J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.

#include "appended_rows.cuh"

// values[dim] = head `head` of from[], normalized. own: its number threadIdx.x, loaded already.
DEVICE void normalise_head(float* values, const float* from, float own, u32 head, u32 dim,
                           u32 n_heads, const float* weight, u32 width, float eps, float offset,
                           float* partial) {
  const auto number = [&](u32 i) { return i == threadIdx.x ? own : from[head * dim + i]; };
  if (width == 0) {
    for (u32 i = threadIdx.x; i < dim; i += blockDim.x) values[i] = number(i);
    return;
  }
  const bool per_head = width == dim;
  const u32 count = per_head ? dim : n_heads * dim;
  float squares = 0;
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
    const float x = per_head ? number(i) : from[i];
    squares += x * x;
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, partial) / float(count) + eps);
  for (u32 i = threadIdx.x; i < dim; i += blockDim.x) {
    const float w = weight[per_head ? i : head * dim + i];
    values[i] = number(i) * scale * (w + offset);
  }
}

// Rotates pairs of 2 n values by angles[2 n], cosines and sines. own: number threadIdx.x of them.
DEVICE void rotate(float* values, const float* angles, Angle own, u32 n, u32 interleaved) {
  for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
    const Angle angle = i == threadIdx.x ? own : Angle{angles[i], angles[n + i]};
    rotate_pair(values, i, n, interleaved, angle);
  }
}

template <class T>
KERNEL rope_append(ARGUMENT(RopeAppend) a) {
  wait_for_previous_kernel();
  const KvCache kv = {a.kv, a.pages};
  SHARED(float, partial, [kWarp]);
  DYNAMIC_SHARED(float, values);
  const u32 token = blockIdx.x, head = blockIdx.y;
  const u32 q_cols = a.n_heads * kv.k_dim, k_cols = kv.n_kv_heads * kv.k_dim;
  const u32 v_cols = kv.values_in_keys ? 0 : kv.n_kv_heads * kv.v_dim;
  const float* row = a.qkv + u64(token) * (q_cols + k_cols + v_cols);
  const float* angles = a.n_freqs > 0 ? a.rope + u64(token) * 2 * a.n_freqs : nullptr;
  // The inputs have room for the tokens of a whole grid, so their numbers are requested together
  // with the number of tokens.
  const bool is_rotated = head < a.n_heads + kv.n_kv_heads;
  float own_number = 0;
  if (is_rotated && threadIdx.x < kv.k_dim) {
    own_number = load_now(row + head * kv.k_dim + threadIdx.x);
  }
  Angle own_angle = {};
  if (is_rotated && threadIdx.x < a.n_freqs) {
    own_angle = {load_now(angles + threadIdx.x), load_now(angles + a.n_freqs + threadIdx.x)};
  }
  const u32 position = load_now(reinterpret_cast<const u32*>(a.positions) + token);
  const i32 own_sequence = i32(load_now(reinterpret_cast<const u32*>(a.sequences) + token));
  const u32 n_copies = load_now(a.n_copies);
  if (token >= load_now(a.n_tokens)) return;
  const u32 slot = position % kv.page_tokens;
  if (is_rotated) {
    const bool is_query = head < a.n_heads;
    const u32 own = is_query ? head : head - a.n_heads;
    if (is_query) {
      normalise_head(values, row, own_number, own, kv.k_dim, a.n_heads, a.q_norm, a.q_norm_width,
                     a.eps, a.offset, partial);
    } else {
      normalise_head(values, row + q_cols, own_number, own, kv.k_dim, kv.n_kv_heads, a.k_norm,
                     a.k_norm_width, a.eps, a.offset, partial);
    }
    __syncthreads();
    if (angles) rotate(values + a.first_rotated, angles, own_angle, a.n_freqs, a.interleaved);
    __syncthreads();
    if (is_query) {
      float* out = a.q + u64(token) * q_cols + own * kv.k_dim;
      for (u32 i = threadIdx.x; i < kv.k_dim; i += blockDim.x) out[i] = values[i];
      return;
    }
  }
  for (u32 i = 0; i <= n_copies; ++i) {
    const i32 sequence = i == 0 ? own_sequence : keeping_sequence(a, token, i);
    if (sequence < 0) continue;
    const u32 page = page_of(a, sequence, position);
    if (is_rotated) {
      store_row(keys_of<T>(kv, page, head - a.n_heads), slot, values);
    } else {
      const u32 own = head - a.n_heads - kv.n_kv_heads;
      store_row(values_of<T>(kv, page, own), slot, row + q_cols + k_cols + own * kv.v_dim);
    }
  }
}

INSTANCE(rope_append<float>)
INSTANCE(rope_append<f16>)
INSTANCE(rope_append<bf16>)
INSTANCE(rope_append<q8>)
INSTANCE(rope_append<q4>)
