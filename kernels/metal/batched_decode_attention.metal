// Attention of a decode step: one launch for a batch of sequences of any lengths.
// Buffers and geometry: arguments.h.
//
// The 8 rows of a matrix are the query heads of one KV head times the queries of the tile, so that
// keys and values are read once for all of them. The kernel is bound by memory, so unused rows cost
// nothing. The SIMD groups take turns at slices of a few positions and need no barrier until they
// add up their results at the end (split over KV as in Flash-Decoding: T. Dao et al., 2023). There
// are as many of them as threadgroup memory holds slices for, since a model of few KV heads has few
// threadgroups. The size of splits depends on the length of a sequence alone, so its result does
// not depend on the rest of the batch. A tile of one split is stored at once;
// merge_attention_splits adds up those of the others.

#include "attention.h"

template <uint D>
struct DecodeTile {
  // A slice is a whole number of 8 numbers for each lane.
  CONSTANT uint kTokens = D % 32 == 0 ? 8 : 16;
  CONSTANT uint kGroups = D <= kNarrowHead ? 16 : D <= 128 ? 8 : 4;
  // Values are requested with their keys, before the scores that they wait for. The sums of wider
  // heads leave no registers for them.
  CONSTANT bool kReadsTogether = D <= 128;
  CONSTANT uint kNumbers = kTokens * (D + kRowPad);
  // Threadgroup memory for the slices, and for the SIMD groups' sums.
  CONSTANT uint kFours = kGroups * kNumbers / 4;
  CONSTANT uint kSums = kGroups * (64 + 16);
};

// Buffers of the kernels, by position.
struct DecodeBuffers {
  device float* out;
  device float* partial_out;
  device float* partial_ml;
  device const float* q;
  device u8* pages;
  device const AttentionWork* work;
  device const int* page_tables;
  device const float* sinks;
};

// The destination of a threadgroup's rows: the results, or the sums of a split.
struct DecodeOutput {
  device float* to;  // [queries][heads][D]
  device float* ml;  // [queries][heads][2]; of a split only
  device const float* sinks;
  bool is_split;
  bool has_sinks;
};

// Adds the SIMD groups' sums of 8 rows and stores them, one part of each head after another,
// through `memory` of kGroups * (64 + 16) floats.
template <uint D>
inline void store_rows(DecodeOutput to, threadgroup float* memory, thread RowState<D>& state,
                       HeadRows rows, Place p) {
  const uint groups = DecodeTile<D>::kGroups;
  threadgroup float* outs = memory;                            // [groups][8][8]
  threadgroup float* largest = outs + groups * 64;             // [groups][8]
  threadgroup float* totals = largest + groups * kDecodeRows;  // [groups][8]
  const MatrixPlace own = matrix_place(p.lane);
  const float total = row_sum(state.total);
  if (own.col == 0) {
    largest[p.simdgroup * kDecodeRows + own.row] = state.largest;
    totals[p.simdgroup * kDecodeRows + own.row] = total;
  }
  // 64 threads store 8 numbers of each of the 8 rows.
  const uint row = p.thread_index / kMatrix % kDecodeRows, dim = p.thread_index % kMatrix;
  const ulong at = ulong(rows.query(row)) * rows.n_heads + rows.head(row);
  const bool stores = p.thread_index < 64 && row < rows.count;
  UNROLL
  for (uint d = 0; d < D / 8; ++d) {
    simdgroup_store(state.out[d], outs + p.simdgroup * 64, kMatrix);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (stores) {
      float most = -INFINITY;
      for (uint g = 0; g < groups; ++g) most = fmax(most, largest[g * kDecodeRows + row]);
      const float base = most == -INFINITY ? 0.0f : most;
      float sum = 0, sum_of_weights = 0;
      for (uint g = 0; g < groups; ++g) {
        const float factor = precise::exp(largest[g * kDecodeRows + row] - base);
        sum += outs[g * 64 + row * kMatrix + dim] * factor;
        sum_of_weights += totals[g * kDecodeRows + row] * factor;
      }
      if (!to.is_split) {
        float shrink = 1.0f;
        if (to.has_sinks) {
          const float sink = to.sinks[rows.head(row)], highest = fmax(most, sink);
          shrink = precise::exp(most - highest);
          sum_of_weights = sum_of_weights * shrink + precise::exp(sink - highest);
        }
        sum = sum_of_weights == 0 ? 0.0f : sum * shrink / sum_of_weights;
      } else if (d == 0 && dim == 0) {
        to.ml[at * 2] = most;
        to.ml[at * 2 + 1] = sum_of_weights;
      }
      to.to[at * D + d * kMatrix + dim] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// Computes an entry of work for the rows of a threadgroup. All threads must call this.
template <class T, uint D>
inline void attend_entry(DecodeBuffers b, uint2 at, threadgroup half* memory,
                         threadgroup float* sums, constant AttentionArgs& args, Place p) {
  const uint groups = DecodeTile<D>::kGroups;
  const AttentionWork entry = b.work[at.x];
  const QueryTile tile = entry.tile;
  const uint group = args.n_heads / args.kv.n_kv_heads;  // query heads per KV head
  const uint row_blocks = (group * args.max_queries + kDecodeRows - 1) / kDecodeRows;
  const uint kv_head = at.y / row_blocks, first_row = at.y % row_blocks * kDecodeRows;
  const uint all_rows = group * tile.n_queries;
  if (first_row >= all_rows) return;
  const uint n_rows = min(kDecodeRows, all_rows - first_row);
  const HeadRows rows = {first_row, n_rows, group, kv_head, args.n_heads};
  const SequencePages from = {b.pages, b.page_tables + ulong(tile.sequence) * args.page_stride,
                              kv_head};

  for (uint i = p.simdgroup; i < kDecodeRows; i += groups) {
    const uint row = i < n_rows ? i : 0;
    const ulong token = tile.first_row + rows.query(row);
    device const float* query = b.q + (token * args.n_heads + rows.head(row)) * D;
    load_query<D>(memory + i * (D + kRowPad), query, i < n_rows, p.lane);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  RowState<D> state;
  begin_rows<D>(state, memory);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  const uint position = tile.first_position, last_row = n_rows - 1;
  const uint own_row = min(matrix_place(p.lane).row, last_row);
  const Visible visible = visible_to(position + rows.query(own_row), tile, args);
  const Visible first_seen = visible_to(position + rows.query(0), tile, args);
  const Visible last_seen = visible_to(position + rows.query(last_row), tile, args);
  const uint split_begin = entry.split * entry.split_tokens;
  const uint tokens = DecodeTile<D>::kTokens;
  const uint begin = max(split_begin, first_seen.begin / tokens * tokens);
  const uint end = min(split_begin + entry.split_tokens, last_seen.end);
  threadgroup half* slice = memory + p.simdgroup * DecodeTile<D>::kNumbers;
  for (uint first = begin + p.simdgroup * tokens; first < end; first += groups * tokens) {
    simdgroup_float8x8 scores[DecodeTile<D>::kTokens / 8];
    simdgroup_half8x8 weights[DecodeTile<D>::kTokens / 8];
    const SlicePlace place = slice_place(from, args.kv, first, end, p.lane);
    SliceUnits<T, D, DecodeTile<D>::kTokens> values;
    if (DecodeTile<D>::kReadsTogether) {
      const SliceUnits<T, D, DecodeTile<D>::kTokens> keys =
          read_slice<T, D, DecodeTile<D>::kTokens>(from, args.kv, false, place, p.lane);
      values = read_slice<T, D, DecodeTile<D>::kTokens>(from, args.kv, true, place, p.lane);
      write_slice<T, D>(slice, keys, p.lane);
    } else {
      load_slice<T, D, DecodeTile<D>::kTokens>(slice, from, args.kv, false, place, 0, 1, p.lane);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    multiply_keys<D, DecodeTile<D>::kTokens>(scores, state, slice);
    weigh_scores<D, DecodeTile<D>::kTokens>(weights, scores, state, first, visible, p.lane, args);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (DecodeTile<D>::kReadsTogether) {
      write_slice<T, D>(slice, values, p.lane);
    } else {
      load_slice<T, D, DecodeTile<D>::kTokens>(slice, from, args.kv, true, place, 0, 1, p.lane);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    add_values<D, DecodeTile<D>::kTokens>(state, weights, slice);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }

  const bool is_split = entry.n_splits > 1;
  const ulong row = is_split ? ulong(at.x) * args.max_queries * args.n_heads
                             : ulong(tile.first_row) * args.n_heads;
  const DecodeOutput to = {(is_split ? b.partial_out : b.out) + row * D, b.partial_ml + row * 2,
                           b.sinks, is_split, args.has_sinks != 0};
  store_rows<D>(to, sums, state, rows, p);
}

template <class T, uint D>
[[kernel, max_total_threads_per_threadgroup(512)]] void narrow_decode_attention(
    device float* out [[buffer(0)]], device float* partial_out [[buffer(1)]],
    device float* partial_ml [[buffer(2)]], device const float* q [[buffer(3)]],
    device u8* pages [[buffer(4)]], device const AttentionWork* work [[buffer(5)]],
    device const uint* n_work [[buffer(6)]], device const int* page_tables [[buffer(7)]],
    device const float* sinks [[buffer(8)]], constant AttentionArgs& args [[buffer(9)]],
    uint2 at [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  // Each SIMD group's slice of keys, then of values. Queries are loaded here first.
  threadgroup half4 fours[DecodeTile<D>::kFours];
  threadgroup float sums[DecodeTile<D>::kSums];
  if (at.x >= *n_work) return;
  attend_entry<T, D>({out, partial_out, partial_ml, q, pages, work, page_tables, sinks}, at,
                     (threadgroup half*)fours, sums, args,
                     {thread_index, lane, simdgroup, DecodeTile<D>::kGroups});
}

// The same for wider heads, whose sums take more registers.
template <class T, uint D>
[[kernel, max_total_threads_per_threadgroup(256)]] void batched_decode_attention(
    device float* out [[buffer(0)]], device float* partial_out [[buffer(1)]],
    device float* partial_ml [[buffer(2)]], device const float* q [[buffer(3)]],
    device u8* pages [[buffer(4)]], device const AttentionWork* work [[buffer(5)]],
    device const uint* n_work [[buffer(6)]], device const int* page_tables [[buffer(7)]],
    device const float* sinks [[buffer(8)]], constant AttentionArgs& args [[buffer(9)]],
    uint2 at [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup half4 fours[DecodeTile<D>::kFours];
  threadgroup float sums[DecodeTile<D>::kSums];
  if (at.x >= *n_work) return;
  attend_entry<T, D>({out, partial_out, partial_ml, q, pages, work, page_tables, sinks}, at,
                     (threadgroup half*)fours, sums, args,
                     {thread_index, lane, simdgroup, DecodeTile<D>::kGroups});
}

// out[token, head] = sum of all splits of the tile / their total, sinks included, for tiles of
// several splits.
kernel void merge_attention_splits(
    device float* out [[buffer(0)]], device const float* partial_out [[buffer(1)]],
    device const float* partial_ml [[buffer(2)]], device const AttentionWork* work [[buffer(3)]],
    device const uint* n_work [[buffer(4)]], device const float* sinks [[buffer(5)]],
    constant MergeAttentionArgs& args [[buffer(6)]],
    uint2 at [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  if (at.x >= *n_work) return;
  const AttentionWork entry = work[at.x];
  const QueryTile tile = entry.tile;
  const uint head = at.y % args.n_heads, query = at.y / args.n_heads;
  if (entry.split != 0 || entry.n_splits == 1 || query >= tile.n_queries) return;
  const ulong step = ulong(args.max_queries) * args.n_heads;
  const ulong first = at.x * step + ulong(query) * args.n_heads + head;
  const bool has_sinks = args.has_sinks != 0;

  float largest = has_sinks ? sinks[head] : -INFINITY;
  for (uint s = 0; s < entry.n_splits; ++s) {
    largest = fmax(largest, partial_ml[(first + s * step) * 2]);
  }
  for (uint i = thread_index; i < args.dim; i += 128) {
    float total = has_sinks ? precise::exp(sinks[head] - largest) : 0.0f;
    float sum = 0;
    for (uint s = 0; s < entry.n_splits; ++s) {
      const ulong part = first + s * step;
      const float most = partial_ml[part * 2];
      if (most == -INFINITY) continue;  // outside the window
      const float factor = precise::exp(most - largest);
      total += partial_ml[part * 2 + 1] * factor;
      sum += partial_out[part * args.dim + i] * factor;
    }
    out[(ulong(tile.first_row + query) * args.n_heads + head) * args.dim + i] =
        total == 0 ? 0.0f : sum / total;
  }
}

INSTANCE(narrow_decode_attention<f16, 16>)
INSTANCE(narrow_decode_attention<f16, 32>)
INSTANCE(narrow_decode_attention<f16, 64>)
INSTANCE(batched_decode_attention<f16, 80>)
INSTANCE(batched_decode_attention<f16, 96>)
INSTANCE(batched_decode_attention<f16, 128>)
INSTANCE(batched_decode_attention<f16, 256>)
INSTANCE(narrow_decode_attention<q8, 16>)
INSTANCE(narrow_decode_attention<q8, 32>)
INSTANCE(narrow_decode_attention<q8, 64>)
INSTANCE(batched_decode_attention<q8, 80>)
INSTANCE(batched_decode_attention<q8, 96>)
INSTANCE(batched_decode_attention<q8, 128>)
INSTANCE(batched_decode_attention<q8, 256>)
INSTANCE(narrow_decode_attention<q4, 16>)
INSTANCE(narrow_decode_attention<q4, 32>)
INSTANCE(narrow_decode_attention<q4, 64>)
INSTANCE(batched_decode_attention<q4, 80>)
INSTANCE(batched_decode_attention<q4, 96>)
INSTANCE(batched_decode_attention<q4, 128>)
INSTANCE(batched_decode_attention<q4, 256>)
