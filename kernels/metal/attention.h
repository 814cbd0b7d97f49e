#pragma once

// Shared by the attention kernels on SIMD group matrices: 8 rows of queries per SIMD group against
// a slice of keys and values in threadgroup memory, with an online softmax.
//
// The method is FlashAttention-2 (T. Dao, 2023). Scores, outputs and sums are F32 in registers;
// queries, keys, values and probabilities are F16. A lane holds two neighbouring numbers of one row
// of each 8 x 8 matrix, at `matrix_place` (arguments.h).

#include "kv.h"

CONSTANT uint kMatrix = 8;  // rows and columns of a SIMD group matrix

// Rows in threadgroup memory are padded by 16 bytes, so that the rows of a matrix do not all begin
// in the same bank.
CONSTANT uint kRowPad = 8;

// Maximum over the lanes that hold one row; they differ in bits 0 and 3.
inline float row_max(float x) {
  x = fmax(x, simd_shuffle_xor(x, ushort(1)));
  return fmax(x, simd_shuffle_xor(x, ushort(8)));
}
inline float row_sum(float x) {
  x += simd_shuffle_xor(x, ushort(1));
  return x + simd_shuffle_xor(x, ushort(8));
}

// The positions visible to one query.
struct Visible {
  uint begin;
  uint end;
};
inline Visible visible_to(uint position, QueryTile tile, constant AttentionArgs& a) {
  const uint seen = a.chunked != 0 ? position % a.window + 1 : a.window;
  const uint begin = a.window > 0 && position + 1 > a.window ? position + 1 - seen : 0;
  if (a.causal != 0) return {begin, position + 1};
  const bool is_cut = a.window > 0 && position < tile.n_keys && tile.n_keys - position > a.window;
  return {begin, is_cut ? position + a.window : tile.n_keys};
}

// The rows of a threadgroup: query heads of one KV head times the queries of a tile.
struct HeadRows {
  uint first;  // index of the threadgroup's first row in the tile
  uint count;
  uint group;  // query heads per KV head
  uint kv_head;
  uint n_heads;

  uint query(uint row) const { return (first + row) / group; }
  uint head(uint row) const { return kv_head * group + (first + row) % group; }
};

// Copies numbers 8 unit .. 8 unit + 7 of a row of the cache.
inline void copy_unit(threadgroup half* to, KvRows<half> rows, uint slot, uint unit) {
  device const half4* from = (device const half4*)(rows.row(slot) + unit * 8);
  ((threadgroup half4*)to)[0] = from[0];
  ((threadgroup half4*)to)[1] = from[1];
}
inline void copy_unit(threadgroup half* to, KvRows<q8> rows, uint slot, uint unit) {
  device const char4* from = (device const char4*)(rows.row(slot) + unit * 8);
  const float scale = float(rows.row_scales(slot)[unit * 8 / kScaleGroup]);
  ((threadgroup half4*)to)[0] = half4(float4(from[0]) * scale);
  ((threadgroup half4*)to)[1] = half4(float4(from[1]) * scale);
}

inline void copy_unit(threadgroup half* to, KvRows<q4> rows, uint slot, uint unit) {
  const uint word = ((device const uint*)rows.row(slot))[unit];
  const float scale = float(rows.row_scales(slot)[8 * unit / kScaleGroup]);
  for (uint i = 0; i < 2; ++i) {
    const uint four = word >> 8 * i;
    const half2 low = small_integers(four & 0x000f000fu, 1032.0f);
    const half2 high = small_integers(four & 0x00f000f0u, 1152.0f);  // times 16
    const float4 numbers = float4(float(low.x), float(low.y), float(high.x) * 0.0625f,
                                  float(high.y) * 0.0625f);
    ((threadgroup half4*)to)[i] = half4(numbers * scale);
  }
}

// Locates the pages of a sequence.
struct SequencePages {
  device u8* pages;
  device const int* table;
  uint kv_head;
};

// The location of a lane's position of a slice: lane l has position first + l. Each SIMD group
// computes the locations of a slice once, for keys and values, and shuffles them between lanes.
CONSTANT uint kNoPage = 0xffffffffu;
struct SlicePlace {
  uint page;  // kNoPage for positions from the end on
  uint slot;
};
inline SlicePlace slice_place(SequencePages from, constant KvPages& kv, uint first, uint end,
                              uint lane) {
  const uint position = first + lane;
  if (position >= end) return {kNoPage, 0};
  return {uint(from.table[position / kv.page_tokens]), position % kv.page_tokens};
}

// Copies the keys (or values) of a slice to threadgroup memory, with SIMD group `group` of
// `groups`; positions from the end on become zeros.
template <class T, uint D, uint tokens>
inline void load_slice(threadgroup half* tile, SequencePages from, constant KvPages& kv,
                       bool values, SlicePlace place, uint group, uint groups, uint lane) {
  const uint units = D / 8;
  // All lanes of a SIMD group run the same number of iterations: `tokens` times D is a multiple of
  // 256.
  for (uint i = group * kLanes + lane; i < tokens * units; i += groups * kLanes) {
    const uint token = i / units, unit = i % units;
    const uint page = simd_shuffle(place.page, ushort(token));
    const uint slot = simd_shuffle(place.slot, ushort(token));
    threadgroup half* to = tile + token * (D + kRowPad) + unit * 8;
    if (page != kNoPage) {
      copy_unit(to, values ? values_of<T>(from.pages, kv, page, from.kv_head)
                           : keys_of<T>(from.pages, kv, page, from.kv_head), slot, unit);
    } else {
      ((threadgroup half4*)to)[0] = half4(half(0));
      ((threadgroup half4*)to)[1] = half4(half(0));
    }
  }
}

// Copies one row of queries as F16, or zeros. Called by a SIMD group.
template <uint D>
inline void load_query(threadgroup half* to, device const float* q, bool valid, uint lane) {
  for (uint i = lane; i < D; i += kLanes) to[i] = valid ? half(q[i]) : half(0);
}

// The queries of a SIMD group and their results so far.
template <uint D>
struct RowState {
  simdgroup_half8x8 queries[D / 8];
  simdgroup_float8x8 out[D / 8];
  float largest;  // largest score of the lane's row so far
  float total;    // this lane's part of the sum of exp(score - largest)
};

// Loads queries from 8 rows of threadgroup memory.
template <uint D>
inline void begin_rows(thread RowState<D>& state, threadgroup const half* q_tile) {
  UNROLL
  for (uint d = 0; d < D / 8; ++d) {
    simdgroup_load(state.queries[d], q_tile + d * 8, D + kRowPad);
    state.out[d] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  state.largest = -INFINITY;
  state.total = 0;
}

// scores[8 rows, tokens] = q k^T.
template <uint D, uint tokens>
inline void multiply_keys(thread simdgroup_float8x8 (&scores)[tokens / 8],
                          thread const RowState<D>& state, threadgroup const half* k_tile) {
  UNROLL
  for (uint n = 0; n < tokens / 8; ++n) {
    scores[n] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    UNROLL
    for (uint d = 0; d < D / 8; ++d) {
      simdgroup_half8x8 keys;
      simdgroup_load(keys, k_tile + n * 8 * (D + kRowPad) + d * 8, D + kRowPad, 0, true);
      simdgroup_multiply_accumulate(scores[n], state.queries[d], keys, scores[n]);
    }
  }
}

// Adds the scores of positions first .. first + tokens to the state. `visible` is for this lane's
// row. Sets `weights` to the exponentials relative to the row's largest score.
template <uint D, uint tokens>
inline void weigh_scores(thread simdgroup_half8x8 (&weights)[tokens / 8],
                         thread simdgroup_float8x8 (&scores)[tokens / 8],
                         thread RowState<D>& state, uint first, Visible visible, uint lane,
                         constant AttentionArgs& args) {
  const uint col = matrix_place(lane).col;
  float largest = state.largest;
  UNROLL
  for (uint n = 0; n < tokens / 8; ++n) {
    UNROLL
    for (uint e = 0; e < 2; ++e) {
      const uint position = first + n * 8 + col + e;
      float score = scores[n].thread_elements()[e] * args.scale;
      if (args.softcap > 0) score = args.softcap * precise::tanh(score / args.softcap);
      score = position >= visible.begin && position < visible.end ? score : -INFINITY;
      scores[n].thread_elements()[e] = score;
      largest = fmax(largest, score);
    }
  }
  largest = row_max(largest);
  // A row without visible positions so far keeps zeros; its exponents are relative to 0.
  const float base = largest == -INFINITY ? 0.0f : largest;
  const float shrink = precise::exp(state.largest - base);
  float sum = 0;
  UNROLL
  for (uint n = 0; n < tokens / 8; ++n) {
    UNROLL
    for (uint e = 0; e < 2; ++e) {
      const float weight = precise::exp(scores[n].thread_elements()[e] - base);
      weights[n].thread_elements()[e] = half(weight);
      sum += weight;
    }
  }
  state.largest = largest;
  state.total = state.total * shrink + sum;
  UNROLL
  for (uint d = 0; d < D / 8; ++d) {
    state.out[d].thread_elements()[0] *= shrink;
    state.out[d].thread_elements()[1] *= shrink;
  }
}

// out += weights [8 rows, tokens] values [tokens, D].
template <uint D, uint tokens>
inline void add_values(thread RowState<D>& state, thread simdgroup_half8x8 (&weights)[tokens / 8],
                       threadgroup const half* v_tile) {
  UNROLL
  for (uint d = 0; d < D / 8; ++d) {
    UNROLL
    for (uint n = 0; n < tokens / 8; ++n) {
      simdgroup_half8x8 values;
      simdgroup_load(values, v_tile + n * 8 * (D + kRowPad) + d * 8, D + kRowPad);
      simdgroup_multiply_accumulate(state.out[d], weights[n], values, state.out[d]);
    }
  }
}
