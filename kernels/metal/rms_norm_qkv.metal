// Computes a decoded token's Q, K and V and prepares attention in one launch: the product of the
// normalized x (rms_norm_matvec.metal), then what rope_append.metal does for heads without norms of
// their own, with the same bits. The two numbers that rotate together are rows of one SIMD group.
// Buffers and geometry: arguments.h.

#include "kv.h"
#include "matvec.h"

// Q, the pages, and where a token's rotated numbers go in them.
struct HeadOutput {
  device float* q;
  device u8* pages;
  device const int* positions;
  device const int* sequences;
  device const int* page_tables;
  device const RowCopy* copies;
  device const uint* n_copies;
  device const float* rope;

  // Stores two numbers, `first` and `second` of a head, in the pages of all sequences that keep the
  // token.
  template <class T>
  void keep(constant RopeAppendArgs& args, uint token, uint head, bool is_value, uint first,
            uint second, float2 pair) const {
    const uint position = uint(positions[token]), slot = position % args.kv.page_tokens;
    const uint index = position / args.kv.page_tokens;
    for (uint i = 0; i <= *n_copies; ++i) {
      const int sequence = keeping_sequence(sequences, copies, token, i);
      if (sequence < 0) continue;
      const uint page = uint(page_tables[ulong(uint(sequence)) * args.page_stride + index]);
      const KvRows<T> rows = is_value ? values_of<T>(pages, args.kv, page, head)
                                      : keys_of<T>(pages, args.kv, page, head);
      device T* row = rows.row(slot);
      row[first] = rounded<T>(pair.x);
      row[second] = rounded<T>(pair.y);
    }
  }

  // Rotates numbers `first` and `second` of q, k and v together, and stores them.
  void store(constant RmsNormQkvArgs& qkv, uint token, uint first, uint second,
             float2 pair) const {
    constant RopeAppendArgs& args = qkv.append;
    const uint k_dim = args.kv.k_dim, n_freqs = args.n_freqs;
    const uint q_cols = args.n_heads * k_dim, k_end = q_cols + args.kv.n_kv_heads * k_dim;
    const bool is_value = first >= k_end;
    const uint dim = is_value ? args.kv.v_dim : k_dim;
    const uint at = is_value ? first - k_end : first < q_cols ? first : first - q_cols;
    const uint head = at / dim, own = at % dim, other = own + second - first;
    if (!is_value && own < 2 * n_freqs) {
      device const float* angles = rope + ulong(token) * 2 * n_freqs;
      const uint i = args.interleaved != 0 ? own / 2 : own;
      pair = rotated_pair(pair, angles[i], angles[n_freqs + i]);
    }
    if (first < q_cols) {
      q[ulong(token) * q_cols + first] = pair.x;
      q[ulong(token) * q_cols + second] = pair.y;
    } else if (qkv.element == 0) {
      keep<float>(args, token, head, is_value, own, other, pair);
    } else if (qkv.element == 1) {
      keep<half>(args, token, head, is_value, own, other, pair);
    } else {
      keep<bf16>(args, token, head, is_value, own, other, pair);
    }
  }
};

struct StoreHeads {
  HeadOutput to;
  device const float* bias;
  constant RmsNormQkvArgs* args;
  RowPairs pairs;
  RowSet set;
  uint first;

  void operator()(uint row, uint t, RowProduct p) const {
    if (first + t >= set.count || row % 2 != 0) return;
    constant RmsNormMatvecArgs& normed = args->normed;
    const float scale = 1.0f / precise::sqrt(p.squares / float(normed.product.cols) + normed.eps);
    const uint own = stored_row(pairs, row), other = stored_row(pairs, row + 1);
    float2 pair = float2(p.product * scale, p.second * scale);
    if (normed.product.epilogue.has_bias != 0) {
      pair = float2(pair.x + bias[own], pair.y + bias[other]);
    }
    to.store(*args, row_of(set, first + t), args->first_row + own, args->first_row + other, pair);
  }
};

template <class F, uint tokens>
[[kernel, max_total_threads_per_threadgroup(256)]] void rms_norm_qkv(
    device float* q [[buffer(0)]], device const float* x [[buffer(1)]],
    device const float* norm_weight [[buffer(2)]], device const u8* weight [[buffer(3)]],
    device const u8* weight_2 [[buffer(4)]], device const u8* weight_3 [[buffer(5)]],
    device const uint* n_rows [[buffer(6)]], device const uint* row_list [[buffer(7)]],
    device const float* bias [[buffer(8)]], device u8* pages [[buffer(9)]],
    device const int* positions [[buffer(10)]], device const int* sequences [[buffer(11)]],
    device const int* page_tables [[buffer(12)]], device const RowCopy* copies [[buffer(13)]],
    device const uint* n_copies [[buffer(14)]], device const float* rope [[buffer(15)]],
    constant RmsNormQkvArgs& args [[buffer(16)]],
    uint2 at [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[PartialSums<F, tokens, NormedTokens<tokens>>::kCount];
  constant MatvecArgs& product = args.normed.product;
  const RowSet set = row_set(n_rows, row_list, product.has_row_list);
  const uint first = at.y * tokens;
  if (first >= set.count) return;
  const NormedTokens<tokens> token_rows =
      normed_tokens<tokens>(x, norm_weight, args.normed, set, first);
  constant RopeAppendArgs& append = args.append;
  const uint k_end = (append.n_heads + append.kv.n_kv_heads) * append.kv.k_dim;
  const RowPairs pairs = {append.interleaved != 0 ? 0 : append.n_freqs, append.kv.k_dim,
                          k_end - min(k_end, args.first_row)};
  const WeightRows rows = weight_rows(weight, weight_2, weight_3, product, pairs);
  const StoreHeads store = {
      {q, pages, positions, sequences, page_tables, copies, n_copies, rope}, bias, &args, pairs,
      set, first};
  multiply_rows<F, tokens>(rows, token_rows, at.x, product.split, nullptr, partial,
                           {thread_index, lane, simdgroup, n_simdgroups}, store);
}

INSTANCE(rms_norm_qkv<FormatF32, 1>)
INSTANCE(rms_norm_qkv<FormatF32, 2>)
INSTANCE(rms_norm_qkv<FormatF32, 4>)
INSTANCE(rms_norm_qkv<FormatF32, 8>)
INSTANCE(rms_norm_qkv<FormatF16, 1>)
INSTANCE(rms_norm_qkv<FormatF16, 2>)
INSTANCE(rms_norm_qkv<FormatF16, 4>)
INSTANCE(rms_norm_qkv<FormatF16, 8>)
INSTANCE(rms_norm_qkv<FormatBF16, 1>)
INSTANCE(rms_norm_qkv<FormatBF16, 2>)
INSTANCE(rms_norm_qkv<FormatBF16, 4>)
INSTANCE(rms_norm_qkv<FormatBF16, 8>)
INSTANCE(rms_norm_qkv<FormatQ8_0, 1>)
INSTANCE(rms_norm_qkv<FormatQ8_0, 2>)
INSTANCE(rms_norm_qkv<FormatQ8_0, 4>)
INSTANCE(rms_norm_qkv<FormatQ8_0, 8>)
INSTANCE(rms_norm_qkv<FormatFP8, 1>)
INSTANCE(rms_norm_qkv<FormatFP8, 2>)
INSTANCE(rms_norm_qkv<FormatFP8, 4>)
INSTANCE(rms_norm_qkv<FormatFP8, 8>)
INSTANCE(rms_norm_qkv<FormatQ4_0, 1>)
INSTANCE(rms_norm_qkv<FormatQ4_0, 2>)
INSTANCE(rms_norm_qkv<FormatQ4_0, 4>)
INSTANCE(rms_norm_qkv<FormatQ4_0, 8>)
INSTANCE(rms_norm_qkv<FormatQ4_K, 1>)
INSTANCE(rms_norm_qkv<FormatQ4_K, 2>)
INSTANCE(rms_norm_qkv<FormatQ4_K, 4>)
INSTANCE(rms_norm_qkv<FormatQ4_K, 8>)
INSTANCE(rms_norm_qkv<FormatQ6_K, 1>)
INSTANCE(rms_norm_qkv<FormatQ6_K, 2>)
INSTANCE(rms_norm_qkv<FormatQ6_K, 4>)
INSTANCE(rms_norm_qkv<FormatQ6_K, 8>)
