// Prepares attention from the product of Q, K and V in one launch: splits each token's row into
// heads, normalizes and rotates q and k, appends k and v to the sequence's page and to those of
// branches, and writes q. Buffers and geometry: arguments.h; a threadgroup per head, queries first,
// then keys, then values.
//
// RMSNorm is over the head if the norm's weight has the width of a head (Qwen 3, Gemma 3), else
// over all heads at once (OLMo 2): then every threadgroup sums the squares of all heads, from the
// cache. RoPE: J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding",
// 2021.

#include "kv.h"

struct HeadNorm {
  device const float* weight;
  uint width;  // 0: none
  float eps;
  float offset;
};

// values[dim] = head `head` of from[], normalized.
inline void normalise_head(threadgroup float* values, device const float* from, uint head, uint dim,
                           uint n_heads, HeadNorm norm, threadgroup float* partial, Place p) {
  const uint threads = threads_of(p);
  if (norm.width == 0) {
    for (uint i = p.thread_index; i < dim; i += threads) values[i] = from[head * dim + i];
    return;
  }
  const bool per_head = norm.width == dim;
  const uint first = per_head ? head * dim : 0, count = per_head ? dim : n_heads * dim;
  float squares = 0;
  for (uint i = p.thread_index; i < count; i += threads) {
    squares += from[first + i] * from[first + i];
  }
  const float mean = group_sum(squares, partial, p) / float(count);
  const float scale = 1.0f / precise::sqrt(mean + norm.eps);
  for (uint i = p.thread_index; i < dim; i += threads) {
    const float w = norm.weight[per_head ? i : head * dim + i];
    values[i] = from[head * dim + i] * scale * (w + norm.offset);
  }
}

// Rotates pairs of 2 n values by the angles with cos and sin in angles[2 n].
inline void rotate_pairs(threadgroup float* values, device const float* angles, uint n,
                         uint interleaved, Place p) {
  for (uint i = p.thread_index; i < n; i += threads_of(p)) {
    const uint first = interleaved != 0 ? 2 * i : i, second = interleaved != 0 ? 2 * i + 1 : i + n;
    const float2 pair =
        rotated_pair(float2(values[first], values[second]), angles[i], angles[n + i]);
    values[first] = pair.x;
    values[second] = pair.y;
  }
}

template <class T>
[[kernel, max_total_threads_per_threadgroup(128)]] void rope_append(
    device float* q [[buffer(0)]], device const float* qkv [[buffer(1)]],
    device u8* pages [[buffer(2)]], device const int* positions [[buffer(3)]],
    device const int* sequences [[buffer(4)]], device const int* page_tables [[buffer(5)]],
    device const uint* n_tokens [[buffer(6)]], device const RowCopy* copies [[buffer(7)]],
    device const uint* n_copies [[buffer(8)]], device const float* q_norm [[buffer(9)]],
    device const float* k_norm [[buffer(10)]], device const float* rope [[buffer(11)]],
    constant RopeAppendArgs& args [[buffer(12)]], threadgroup float* values [[threadgroup(0)]],
    uint2 at [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[kLanes];
  const uint token = at.x, head = at.y;
  if (token >= *n_tokens) return;
  const Place p = {thread_index, lane, simdgroup, n_simdgroups};
  constant KvPages& kv = args.kv;
  const uint n_heads = args.n_heads, k_dim = kv.k_dim;
  const uint q_cols = n_heads * k_dim, k_cols = kv.n_kv_heads * k_dim;
  const uint v_cols = kv.values_in_keys != 0 ? 0 : kv.n_kv_heads * kv.v_dim;
  device const float* row = qkv + ulong(token) * (q_cols + k_cols + v_cols);
  const uint position = uint(positions[token]), slot = position % kv.page_tokens;
  const uint index = position / kv.page_tokens;

  if (head >= n_heads + kv.n_kv_heads) {
    const uint own = head - n_heads - kv.n_kv_heads;
    for (uint i = 0; i <= *n_copies; ++i) {
      const int sequence = keeping_sequence(sequences, copies, token, i);
      if (sequence < 0) continue;
      const uint page = uint(page_tables[ulong(uint(sequence)) * args.page_stride + index]);
      store_row(values_of<T>(pages, kv, page, own), slot, row + q_cols + k_cols + own * kv.v_dim,
                p);
    }
    return;
  }
  const bool is_query = head < n_heads;
  const uint own = is_query ? head : head - n_heads;
  const HeadNorm norm = {is_query ? q_norm : k_norm,
                         is_query ? args.q_norm_width : args.k_norm_width, args.eps, args.offset};
  normalise_head(values, is_query ? row : row + q_cols, own, k_dim,
                 is_query ? n_heads : kv.n_kv_heads, norm, partial, p);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (args.n_freqs > 0) {
    rotate_pairs(values + args.first_rotated, rope + ulong(token) * 2 * args.n_freqs, args.n_freqs,
                 args.interleaved, p);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (is_query) {
    device float* out = q + ulong(token) * q_cols + own * k_dim;
    for (uint i = thread_index; i < k_dim; i += threads_of(p)) out[i] = values[i];
    return;
  }
  for (uint i = 0; i <= *n_copies; ++i) {
    const int sequence = keeping_sequence(sequences, copies, token, i);
    if (sequence < 0) continue;
    const uint page = uint(page_tables[ulong(uint(sequence)) * args.page_stride + index]);
    store_row(keys_of<T>(pages, kv, page, own), slot, values, p);
  }
}

INSTANCE(rope_append<float>)
INSTANCE(rope_append<f16>)
INSTANCE(rope_append<bf16>)
INSTANCE(rope_append<q8>)
INSTANCE(rope_append<q4>)
