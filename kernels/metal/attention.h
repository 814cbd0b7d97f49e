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

// Numbers 8 unit .. 8 unit + 7 of a row of the cache, as it keeps them.
template <class T>
struct CacheUnit;
template <>
struct CacheUnit<half> {
  half4 numbers[2];
};
template <>
struct CacheUnit<q8> {
  char4 numbers[2];
  half scale;
};
template <>
struct CacheUnit<q4> {
  uint word;
  half scale;
};

inline CacheUnit<half> read_unit(KvRows<half> rows, uint slot, uint unit) {
  device const half4* from = (device const half4*)(rows.row(slot) + unit * 8);
  return {{from[0], from[1]}};
}
inline CacheUnit<q8> read_unit(KvRows<q8> rows, uint slot, uint unit) {
  device const char4* from = (device const char4*)(rows.row(slot) + unit * 8);
  return {{from[0], from[1]}, rows.row_scales(slot)[unit * 8 / kScaleGroup]};
}
inline CacheUnit<q4> read_unit(KvRows<q4> rows, uint slot, uint unit) {
  const uint word = ((device const uint*)rows.row(slot))[unit];
  return {word, rows.row_scales(slot)[unit * 8 / kScaleGroup]};
}

inline void write_unit(threadgroup half* to, CacheUnit<half> unit) {
  for (uint i = 0; i < 2; ++i) ((threadgroup half4*)to)[i] = unit.numbers[i];
}
inline void write_unit(threadgroup half* to, CacheUnit<q8> unit) {
  const float scale = float(unit.scale);
  for (uint i = 0; i < 2; ++i) {
    ((threadgroup half4*)to)[i] = half4(float4(unit.numbers[i]) * scale);
  }
}
inline void write_unit(threadgroup half* to, CacheUnit<q4> unit) {
  const float scale = float(unit.scale);
  for (uint i = 0; i < 2; ++i) {
    const uint four = unit.word >> 8 * i;
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

// Reads unit number `i` of the keys (or values) of a slice, row after row; zeros for positions from
// the end on. All lanes of a SIMD group must call this.
template <class T, uint D>
inline CacheUnit<T> read_slice_unit(SequencePages from, constant KvPages& kv, bool values,
                                    SlicePlace place, uint i) {
  const ushort token = ushort(i / (D / 8));
  const uint page = simd_shuffle(place.page, token), slot = simd_shuffle(place.slot, token);
  if (page == kNoPage) return CacheUnit<T>{};
  return read_unit(values ? values_of<T>(from.pages, kv, page, from.kv_head)
                          : keys_of<T>(from.pages, kv, page, from.kv_head), slot, i % (D / 8));
}
template <class T, uint D>
inline void write_slice_unit(threadgroup half* tile, CacheUnit<T> unit, uint i) {
  write_unit(tile + i / (D / 8) * (D + kRowPad) + i % (D / 8) * 8, unit);
}

// Copies the keys (or values) of a slice to threadgroup memory, with SIMD group `group` of
// `groups`.
template <class T, uint D, uint tokens>
inline void load_slice(threadgroup half* tile, SequencePages from, constant KvPages& kv,
                       bool values, SlicePlace place, uint group, uint groups, uint lane) {
  // All lanes of a SIMD group run the same number of iterations: `tokens` times D is a multiple of
  // 256.
  for (uint i = group * kLanes + lane; i < tokens * D / 8; i += groups * kLanes) {
    write_slice_unit<T, D>(tile, read_slice_unit<T, D>(from, kv, values, place, i), i);
  }
}

// A lane's part of the keys (or values) of a slice that one SIMD group copies.
template <class T, uint D, uint tokens>
struct SliceUnits {
  CONSTANT uint kEach = tokens * D / 8 / kLanes;
  CacheUnit<T> units[kEach];
};
template <class T, uint D, uint tokens>
inline SliceUnits<T, D, tokens> read_slice(SequencePages from, constant KvPages& kv, bool values,
                                           SlicePlace place, uint lane) {
  SliceUnits<T, D, tokens> slice;
  UNROLL
  for (uint i = 0; i < SliceUnits<T, D, tokens>::kEach; ++i) {
    slice.units[i] = read_slice_unit<T, D>(from, kv, values, place, i * kLanes + lane);
  }
  return slice;
}
template <class T, uint D, uint tokens>
inline void write_slice(threadgroup half* tile, SliceUnits<T, D, tokens> slice, uint lane) {
  UNROLL
  for (uint i = 0; i < SliceUnits<T, D, tokens>::kEach; ++i) {
    write_slice_unit<T, D>(tile, slice.units[i], i * kLanes + lane);
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
