// Plain attention: the fallback for head sizes, cache types and masks without a kernel on SIMD
// group matrices, and the only kernel for F32 caches, which those kernels would round. Buffers and
// geometry: arguments.h; a threadgroup per query and head.
//
// A tile has one position per thread: each thread computes one score, the threadgroup reduces
// maximum and sum, and each thread then adds up some of the output's columns. The sum is relative
// to the largest score so far (the online softmax of M. Milakov and N. Gimelshein, 2018), so memory
// does not grow with length.

#include "kv.h"

CONSTANT uint kTile = 128;    // positions per tile; also threads per threadgroup
CONSTANT uint kColumns = 4;   // output columns per thread in one sweep over the positions

template <class T>
inline float score_of(device const float* q, KvRows<T> k, uint slot, float scale,
                      float softcap) {
  float sum = 0;
  for (uint i = 0; i < k.dim; ++i) sum += q[i] * kv_number(k, slot, i);
  const float score = sum * scale;
  return softcap > 0 ? softcap * precise::tanh(score / softcap) : score;
}

// A score with the mask of its query and head.
inline float masked_score(float score, device const uint* mask, uint position, uint is_bits) {
  if (is_bits == 0) return score + as_type<float>(mask[position]);
  return (mask[position / 32] >> position % 32 & 1) != 0 ? score : -INFINITY;
}

template <class T>
[[kernel, max_total_threads_per_threadgroup(128)]] void naive_attention(
    device float* out [[buffer(0)]], device const float* q [[buffer(1)]],
    device u8* pages [[buffer(2)]], device const int* positions [[buffer(3)]],
    device const int* sequences [[buffer(4)]], device const int* n_keys [[buffer(5)]],
    device const int* page_tables [[buffer(6)]], device const uint* n_tokens [[buffer(7)]],
    device const float* sinks [[buffer(8)]], device const uint* mask [[buffer(9)]],
    device const uint* mask_stride [[buffer(10)]], constant NaiveAttentionArgs& args [[buffer(11)]],
    uint2 at [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float weights[kTile];
  threadgroup uint tile_pages[kTile];
  threadgroup float max_partial[kLanes];
  threadgroup float sum_partial[kLanes];
  const uint token = at.y, head = at.x;
  if (token >= *n_tokens) return;
  const Place p = {thread_index, lane, simdgroup, n_simdgroups};
  constant KvPages& kv = args.kv;
  const uint v_dim = kv.v_dim, kv_head = head / (args.n_heads / kv.n_kv_heads);
  const ulong row = ulong(token) * args.n_heads + head;
  device const float* query = q + row * kv.k_dim;
  device float* result = out + row * v_dim;
  device const int* table = page_tables + ulong(uint(sequences[token])) * args.page_stride;
  const uint own = uint(positions[token]), keys = uint(n_keys[token]);
  const uint seen = args.chunked != 0 ? own % args.window + 1 : args.window;
  const uint begin = args.window > 0 && own + 1 > args.window ? own + 1 - seen : 0;
  uint end = own + 1;
  if (args.causal == 0) {
    const bool is_cut = args.window > 0 && own < keys && keys - own > args.window;
    end = is_cut ? own + args.window : keys;
  }
  device const uint* hidden = mask;
  if (args.mask_heads > 0) {
    const uint mask_head = args.mask_heads == 1 ? 0 : head;
    hidden += (ulong(token) * args.mask_heads + mask_head) * *mask_stride;
  }

  // Wide heads take several sweeps; each sweep computes the scores again.
  for (uint sweep = 0; sweep < v_dim; sweep += kTile * kColumns) {
    float largest = args.has_sinks != 0 ? sinks[head] : -INFINITY;
    float total = args.has_sinks != 0 ? 1.0f : 0.0f;
    float sums[kColumns] = {};
    for (uint first = begin; first < end; first += kTile) {
      const uint position = first + thread_index;
      float score = -INFINITY;
      if (position < end) {
        const uint page = uint(table[position / kv.page_tokens]);
        tile_pages[thread_index] = page;
        score = score_of(query, keys_of<T>(pages, kv, page, kv_head), position % kv.page_tokens,
                         args.scale, args.softcap);
        if (args.mask_heads > 0) score = masked_score(score, hidden, position, args.mask_is_bits);
      }
      const float now_largest = fmax(largest, group_max(score, max_partial, p));
      // While everything is hidden, exponents are relative to 0.
      const float base = now_largest == -INFINITY ? 0.0f : now_largest;
      const float weight = position < end ? precise::exp(score - base) : 0.0f;
      weights[thread_index] = weight;
      const float shrink = precise::exp(largest - base);
      total = total * shrink + group_sum(weight, sum_partial, p);
      largest = now_largest;

      const uint count = min(kTile, end - first);
      for (uint c = 0; c < kColumns; ++c) {
        const uint i = sweep + c * kTile + thread_index;
        if (i >= v_dim) continue;
        float sum = sums[c] * shrink;
        for (uint n = 0; n < count; ++n) {
          const KvRows<T> values = values_of<T>(pages, kv, tile_pages[n], kv_head);
          sum += weights[n] * kv_number(values, (first + n) % kv.page_tokens, i);
        }
        sums[c] = sum;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint c = 0; c < kColumns; ++c) {
      const uint i = sweep + c * kTile + thread_index;
      if (i < v_dim) result[i] = total == 0 ? 0.0f : sums[c] / total;
    }
  }
}

INSTANCE(naive_attention<float>)
INSTANCE(naive_attention<f16>)
INSTANCE(naive_attention<bf16>)
INSTANCE(naive_attention<q8>)
INSTANCE(naive_attention<q4>)
