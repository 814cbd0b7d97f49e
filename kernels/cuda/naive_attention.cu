// Plain attention: the fallback for head sizes, cache types and masks without a tensor-core kernel,
// and the only kernel for F32 caches, which tensor cores would round.
//
//   q [tokens, n_heads * k_dim], out [tokens, n_heads * v_dim] F32
//   positions, sequences, n_keys: of each token; n_keys is the number of positions of its sequence
//   grid: (n_heads, rows of the set): a block per query; block 128
//   scores are scale * q k, softcap * tanh(score / softcap) when softcap > 0, over the positions
//   that the query sees (visible.cuh); sinks [n_heads] (or null) are logits without a value
//
// A tile has one position per thread: each thread computes one score, the block reduces maximum and
// sum, and each thread then adds up some of the output's columns. The sum is relative to the
// largest score so far (the online softmax of M. Milakov and N. Gimelshein, 2018), so memory does
// not grow with length.

#include "kv.cuh"
#include "row_set.cuh"
#include "visible.cuh"

constexpr u32 kTile = 128;       // positions per tile; also threads per block
constexpr u32 kColumns = 4;      // output columns per thread in one sweep over the positions

template <class T>
DEVICE float score_of(const float* q, const KvRows<T>& k, u32 slot, float scale, float softcap) {
  float sum = 0;
  for (u32 i = 0; i < k.dim; ++i) sum += q[i] * kv_number(k, slot, i);
  const float score = sum * scale;
  return softcap > 0 ? softcap * tanhf(score / softcap) : score;
}

template <class T, class Limits = Unmasked>
KERNEL naive_attention(AttentionOperands a, NaiveAttention tokens) {
  wait_for_previous_kernel();
  const KvCache& kv = a.kv;
  const AttentionArgs& args = a.args;
  SHARED(float, weights, [kTile]);
  SHARED(u32, pages, [kTile]);
  SHARED(float, max_partial, [kWarp]);
  SHARED(float, sum_partial, [kWarp]);
  if (blockIdx.y >= *tokens.rows.count) return;
  const u32 token = row_of_set(tokens.rows, blockIdx.y), head = blockIdx.x;
  const u32 kv_head = head / (args.n_heads / kv.n_kv_heads);
  const float* query = a.q + (u64(token) * args.n_heads + head) * kv.k_dim;
  float* result = a.out + (u64(token) * args.n_heads + head) * kv.v_dim;
  const i32* table = a.page_tables + u64(tokens.sequences[token]) * a.page_stride;
  const float* sinks = args.sinks;
  const Limits limits(
      visible_from(u32(tokens.positions[token]), u32(tokens.n_keys[token]), args), args, token,
      head);
  const u32 begin = limits.begin, end = limits.end;

  // Wide heads take several sweeps; each sweep computes the scores again.
  for (u32 sweep = 0; sweep < kv.v_dim; sweep += kTile * kColumns) {
    float largest = sinks ? sinks[head] : -FORGE_INFINITY;
    float total = sinks ? 1.0f : 0.0f;
    float sums[kColumns] = {};
    for (u32 first = begin; first < end; first += kTile) {
      const u32 position = first + threadIdx.x;
      float score = -FORGE_INFINITY;
      if (position < end) {
        const u32 page = u32(table[position / kv.page_tokens]);
        pages[threadIdx.x] = page;
        score = score_of(query, keys_of<T>(kv, page, kv_head), position % kv.page_tokens,
                         args.scale, args.softcap);
        score = limits.shown(score, position);
      }
      const float now_largest = fmaxf(largest, block_max(score, max_partial));
      // While everything is hidden, exponents are relative to 0.
      const float base = now_largest == -FORGE_INFINITY ? 0.0f : now_largest;
      const float weight = position < end ? expf(score - base) : 0.0f;
      weights[threadIdx.x] = weight;
      const float shrink = expf(largest - base);
      total = total * shrink + block_sum(weight, sum_partial);
      largest = now_largest;

      const u32 count = min(kTile, end - first);
      for (u32 c = 0; c < kColumns; ++c) {
        const u32 i = sweep + c * kTile + threadIdx.x;
        if (i >= kv.v_dim) continue;
        float sum = sums[c] * shrink;
        for (u32 p = 0; p < count; ++p) {
          const KvRows<T> values = values_of<T>(kv, pages[p], kv_head);
          sum += weights[p] * kv_number(values, (first + p) % kv.page_tokens, i);
        }
        sums[c] = sum;
      }
      __syncthreads();
    }
    for (u32 c = 0; c < kColumns; ++c) {
      const u32 i = sweep + c * kTile + threadIdx.x;
      if (i < kv.v_dim) result[i] = total == 0 ? 0.0f : sums[c] / total;
    }
  }
}

INSTANCE(naive_attention<float>)
INSTANCE(naive_attention<f16>)
INSTANCE(naive_attention<bf16>)
INSTANCE(naive_attention<q8>)
INSTANCE(naive_attention<q4>)
INSTANCE(naive_attention<float, Masked>)
INSTANCE(naive_attention<f16, Masked>)
INSTANCE(naive_attention<bf16, Masked>)
INSTANCE(naive_attention<q8, Masked>)
INSTANCE(naive_attention<q4, Masked>)
