// Attention over heads whose values are the first V of the K numbers of their keys, as in latent
// attention (DeepSeek-AI, arXiv:2405.04434): all query heads share a key, so a tile of positions in
// threadgroup memory holds the keys and values of all heads. Buffers and geometry: arguments.h.
//
// The rows of a threadgroup are query heads times queries, as in decoding. For each tile of 16
// positions, its four SIMD groups first divide the numbers of a key among themselves: each
// multiplies with its part of the queries, which stays in registers. Then they divide the rows,
// whose scores are the sums of the four partial scores (online softmax), then the columns of the
// output, which stay in registers, too.

#include "attention.h"

CONSTANT uint kLatentGroups = 4;   // SIMD groups
CONSTANT uint kLatentTokens = 16;  // positions per tile
CONSTANT uint kRowTiles = kLatentRows / kMatrix;
CONSTANT uint kTokenTiles = kLatentTokens / kMatrix;
CONSTANT uint kRowLanes = 8;  // lanes per row in the softmax, two positions each
CONSTANT uint kWeightStride = kLatentTokens + kRowPad;

// Threadgroup memory besides keys.
struct LatentMemory {
  threadgroup float* scores;  // [kLatentGroups][kLatentRows][kLatentTokens]
  threadgroup half* weights;  // [kLatentRows][kWeightStride]: exponentials of the scores
  threadgroup float* shrink;  // [kLatentRows]: factor for the previous sums
};

// The softmax of one row, held by the lanes that share it.
struct RowSoftmax {
  float largest;  // largest score so far
  float total;    // this lane's part of the sum of exp(score - largest)
};

inline float shared_row_max(float x) {
  for (ushort bits = kRowLanes / 2; bits > 0; bits /= 2) x = fmax(x, simd_shuffle_xor(x, bits));
  return x;
}
inline float shared_row_sum(float x) {
  for (ushort bits = kRowLanes / 2; bits > 0; bits /= 2) x += simd_shuffle_xor(x, bits);
  return x;
}

// A SIMD group's partial scores, over the numbers of keys from `first` on.
template <uint K>
inline void multiply_latent_keys(threadgroup float* scores,
                                 thread const simdgroup_half8x8 (&queries)[kRowTiles][K / 32],
                                 threadgroup const half* keys, uint first) {
  simdgroup_float8x8 sums[kRowTiles][kTokenTiles];
  UNROLL
  for (uint t = 0; t < kRowTiles; ++t) {
    UNROLL
    for (uint n = 0; n < kTokenTiles; ++n) {
      sums[t][n] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }
  UNROLL
  for (uint d = 0; d < K / 32; ++d) {
    UNROLL
    for (uint n = 0; n < kTokenTiles; ++n) {
      simdgroup_half8x8 part;
      simdgroup_load(part, keys + n * 8 * (K + kRowPad) + first + d * 8, K + kRowPad, 0, true);
      UNROLL
      for (uint t = 0; t < kRowTiles; ++t) {
        simdgroup_multiply_accumulate(sums[t][n], queries[t][d], part, sums[t][n]);
      }
    }
  }
  UNROLL
  for (uint t = 0; t < kRowTiles; ++t) {
    UNROLL
    for (uint n = 0; n < kTokenTiles; ++n) {
      simdgroup_store(sums[t][n], scores + t * 8 * kLatentTokens + n * 8, kLatentTokens);
    }
  }
}

// Adds two positions of a row to its softmax; the tile begins with position `first`.
inline void add_scores(thread RowSoftmax& own, LatentMemory memory, uint row, uint part, uint first,
                       Visible visible, constant AttentionArgs& args) {
  float scores[2];
  float largest = own.largest;
  UNROLL
  for (uint e = 0; e < 2; ++e) {
    float score = 0;
    UNROLL
    for (uint g = 0; g < kLatentGroups; ++g) {
      score += memory.scores[(g * kLatentRows + row) * kLatentTokens + 2 * part + e];
    }
    score *= args.scale;
    if (args.softcap > 0) score = args.softcap * precise::tanh(score / args.softcap);
    const uint position = first + 2 * part + e;
    scores[e] = position >= visible.begin && position < visible.end ? score : -INFINITY;
    largest = fmax(largest, scores[e]);
  }
  largest = shared_row_max(largest);
  // A row without visible positions so far keeps zeros; its exponents are relative to 0.
  const float base = largest == -INFINITY ? 0.0f : largest;
  const float shrink = precise::exp(own.largest - base);
  own.largest = largest;
  own.total *= shrink;
  UNROLL
  for (uint e = 0; e < 2; ++e) {
    const float weight = precise::exp(scores[e] - base);
    own.total += weight;
    memory.weights[row * kWeightStride + 2 * part + e] = half(weight);
  }
  if (part == 0) memory.shrink[row] = shrink;
}

// Adds the product of a tile's weights and values to a SIMD group's columns of all rows.
template <uint K, uint V>
inline void add_latent_values(thread simdgroup_float8x8 (&out)[kRowTiles][V / 32],
                              threadgroup const half* values, LatentMemory memory, uint row) {
  UNROLL
  for (uint t = 0; t < kRowTiles; ++t) {
    const float shrink = memory.shrink[t * kMatrix + row];
    UNROLL
    for (uint d = 0; d < V / 32; ++d) {
      out[t][d].thread_elements()[0] *= shrink;
      out[t][d].thread_elements()[1] *= shrink;
    }
  }
  UNROLL
  for (uint n = 0; n < kTokenTiles; ++n) {
    simdgroup_half8x8 weights[kRowTiles];
    UNROLL
    for (uint t = 0; t < kRowTiles; ++t) {
      simdgroup_load(weights[t], memory.weights + t * kMatrix * kWeightStride + n * 8,
                     kWeightStride);
    }
    UNROLL
    for (uint d = 0; d < V / 32; ++d) {
      simdgroup_half8x8 part;
      simdgroup_load(part, values + n * 8 * (K + kRowPad) + d * 8, K + kRowPad);
      UNROLL
      for (uint t = 0; t < kRowTiles; ++t) {
        simdgroup_multiply_accumulate(out[t][d], weights[t], part, out[t][d]);
      }
    }
  }
}

template <class T, uint K, uint V>
[[kernel, max_total_threads_per_threadgroup(128)]] void latent_attention(
    device float* out [[buffer(0)]], device float* partial_out [[buffer(1)]],
    device float* partial_ml [[buffer(2)]], device const float* q [[buffer(3)]],
    device u8* pages [[buffer(4)]], device const QueryTile* tiles [[buffer(5)]],
    device const AttentionWork* work [[buffer(6)]], device const uint* n_work [[buffer(7)]],
    device const int* page_tables [[buffer(8)]], device const float* sinks [[buffer(9)]],
    constant LatentAttentionArgs& args [[buffer(10)]], uint2 at [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  // Queries are loaded here before the first tile of keys; both have the same number of rows.
  threadgroup half4 fours[kLatentTokens * (K + kRowPad) / 4];
  threadgroup float scores[kLatentGroups * kLatentRows * kLatentTokens];
  threadgroup half weights[kLatentRows * kWeightStride];
  threadgroup float shrink[kLatentRows];
  threadgroup float row_largest[kLatentRows];
  threadgroup float row_total[kLatentRows];
  constant AttentionArgs& a = args.attention;
  const bool decodes = args.has_work != 0;
  if (at.x >= *n_work) return;
  uint split = 0, split_tokens = 0;
  bool is_split = false;
  QueryTile tile;
  if (decodes) {
    const AttentionWork entry = work[at.x];
    tile = entry.tile;
    split = entry.split;
    split_tokens = entry.split_tokens;
    is_split = entry.n_splits > 1;
  } else {
    tile = tiles[at.x];
  }
  const uint group = a.n_heads / a.kv.n_kv_heads, kv_head = at.y % a.kv.n_kv_heads;
  const uint first_row = at.y / a.kv.n_kv_heads * kLatentRows, all_rows = group * tile.n_queries;
  if (first_row >= all_rows) return;
  const uint n_rows = min(kLatentRows, all_rows - first_row), last_row = n_rows - 1;
  const HeadRows rows = {first_row, n_rows, group, kv_head, a.n_heads};
  const SequencePages from = {pages, page_tables + ulong(tile.sequence) * a.page_stride,
                              kv_head};
  threadgroup half* keys = (threadgroup half*)fours;
  const LatentMemory memory = {scores, weights, shrink};

  for (uint i = simdgroup; i < kLatentRows; i += kLatentGroups) {
    const uint row = min(i, last_row);
    const ulong token = tile.first_row + rows.query(row);
    device const float* query = q + (token * a.n_heads + rows.head(row)) * K;
    load_query<K>(keys + i * (K + kRowPad), query, i < n_rows, lane);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_half8x8 queries[kRowTiles][K / 32];
  simdgroup_float8x8 sums[kRowTiles][V / 32];
  UNROLL
  for (uint t = 0; t < kRowTiles; ++t) {
    UNROLL
    for (uint d = 0; d < K / 32; ++d) {
      simdgroup_load(queries[t][d],
                     keys + t * kMatrix * (K + kRowPad) + simdgroup * (K / 4) + d * 8,
                     K + kRowPad);
    }
    UNROLL
    for (uint d = 0; d < V / 32; ++d) {
      sums[t][d] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  // The row of this lane in the softmax, and its row and columns of matrices.
  const uint own_row = simdgroup * (kLatentRows / kLatentGroups) + lane / kRowLanes;
  const MatrixPlace own = matrix_place(lane);
  RowSoftmax softmax = {-INFINITY, 0};
  const uint position = tile.first_position;
  const Visible visible = visible_to(position + rows.query(min(own_row, last_row)), tile, a);
  const uint seen_begin = visible_to(position + rows.query(0), tile, a).begin;
  const uint seen_end = visible_to(position + rows.query(last_row), tile, a).end;
  const uint begin = max(split * split_tokens, seen_begin / kLatentTokens * kLatentTokens);
  const uint end = decodes ? min((split + 1) * split_tokens, seen_end) : seen_end;
  for (uint first = begin; first < end; first += kLatentTokens) {
    const SlicePlace place = slice_place(from, a.kv, first, end, lane);
    load_slice<T, K, kLatentTokens>(keys, from, a.kv, false, place, simdgroup, kLatentGroups,
                                    lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_latent_keys<K>(scores + simdgroup * kLatentRows * kLatentTokens, queries, keys,
                            simdgroup * (K / 4));
    threadgroup_barrier(mem_flags::mem_threadgroup);
    add_scores(softmax, memory, own_row, lane % kRowLanes, first, visible, a);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    add_latent_values<K, V>(sums, keys + simdgroup * (V / 4), memory, own.row);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  const float total = shared_row_sum(softmax.total);
  if (lane % kRowLanes == 0) {
    row_largest[own_row] = softmax.largest;
    row_total[own_row] = total;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  UNROLL
  for (uint t = 0; t < kRowTiles; ++t) {
    const uint row = t * kMatrix + own.row;
    if (row >= n_rows) continue;
    const uint query = rows.query(row), head = rows.head(row);
    const float most = row_largest[row], all = row_total[row];
    float factor = 1.0f;
    ulong to;
    if (is_split) {
      to = (ulong(at.x) * a.max_queries + query) * a.n_heads + head;
      if (simdgroup == 0 && own.col == 0) {
        partial_ml[to * 2] = most;
        partial_ml[to * 2 + 1] = all;
      }
    } else {
      to = ulong(tile.first_row + query) * a.n_heads + head;
      if (a.has_sinks != 0) {
        const float largest = fmax(most, sinks[head]);
        const float kept = precise::exp(most - largest);
        factor = kept / (all * kept + precise::exp(sinks[head] - largest));
      } else {
        factor = all == 0 ? 0.0f : 1.0f / all;
      }
    }
    device float* columns = (is_split ? partial_out : out) + to * V + simdgroup * (V / 4) + own.col;
    UNROLL
    for (uint d = 0; d < V / 32; ++d) {
      *(device float2*)(columns + d * 8) = float2(sums[t][d].thread_elements()[0] * factor,
                                                  sums[t][d].thread_elements()[1] * factor);
    }
  }
}

INSTANCE(latent_attention<f16, 288, 256>)
INSTANCE(latent_attention<f16, 576, 512>)
INSTANCE(latent_attention<q8, 288, 256>)
INSTANCE(latent_attention<q8, 576, 512>)
INSTANCE(latent_attention<q4, 288, 256>)
INSTANCE(latent_attention<q4, 576, 512>)
