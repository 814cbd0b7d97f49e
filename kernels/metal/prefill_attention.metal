// Attention of a prompt's chunk: tiles of up to 64 queries of one head against the pages of their
// sequence. Buffers and geometry: arguments.h; a threadgroup computes 32 queries, four SIMD groups
// 8 each; the z index of the grid is the half of the tile.
//
// All SIMD groups share a tile of positions (32, or 16 for wide heads) in threadgroup memory. Tiles
// without visible positions (later, or before the window) are not read. The heads of a KV head's
// group read the same pages at the same time, from the cache.

#include "attention.h"

CONSTANT uint kGroupQueries = kPrefillQueries / 2;

template <uint D>
struct PrefillTile {
  CONSTANT uint kTokens = D > 128 ? 16 : 32;
  CONSTANT uint kNumbers = kTokens * (D + kRowPad);
};

template <class T, uint D>
[[kernel, max_total_threads_per_threadgroup(128)]] void prefill_attention(
    device float* out [[buffer(0)]], device const float* q [[buffer(1)]],
    device u8* pages [[buffer(2)]], device const QueryTile* tiles [[buffer(3)]],
    device const uint* n_tiles [[buffer(4)]], device const int* page_tables [[buffer(5)]],
    device const float* sinks [[buffer(6)]], constant AttentionArgs& args [[buffer(7)]],
    uint3 at [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  // Keys and values. The 32 queries are loaded here first.
  const uint tokens = PrefillTile<D>::kTokens;
  threadgroup half4 fours[2 * PrefillTile<D>::kNumbers / 4];
  threadgroup half* memory = (threadgroup half*)fours;
  threadgroup half* k_tile = memory;
  threadgroup half* v_tile = memory + PrefillTile<D>::kNumbers;
  if (at.y >= *n_tiles) return;
  const QueryTile tile = tiles[at.y];
  const uint first_query = at.z * kGroupQueries;
  if (first_query >= tile.n_queries) return;
  const uint n_queries = min(kGroupQueries, tile.n_queries - first_query);
  const uint head = at.x;
  const SequencePages from = {pages, page_tables + ulong(tile.sequence) * args.page_stride,
                              head / (args.n_heads / args.kv.n_kv_heads)};

  const uint own = simdgroup * kMatrix;
  for (uint i = own; i < own + kMatrix; ++i) {
    const bool valid = i < n_queries;
    const ulong row = tile.first_row + first_query + (valid ? i : 0);
    load_query<D>(memory + i * (D + kRowPad), q + (row * args.n_heads + head) * D, valid, lane);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  RowState<D> state;
  begin_rows<D>(state, memory + own * (D + kRowPad));
  threadgroup_barrier(mem_flags::mem_threadgroup);

  // Rows beyond the last query repeat it; they are not stored.
  const uint position = tile.first_position + first_query, last = n_queries - 1;
  const uint own_query = own + matrix_place(lane).row;
  const Visible visible = visible_to(position + min(own_query, last), tile, args);
  const uint end = visible_to(position + last, tile, args).end;
  for (uint first = visible_to(position, tile, args).begin / tokens * tokens; first < end;
       first += tokens) {
    const SlicePlace place = slice_place(from, args.kv, first, end, lane);
    load_slice<T, D, PrefillTile<D>::kTokens>(k_tile, from, args.kv, false, place, simdgroup, 4,
                                              lane);
    load_slice<T, D, PrefillTile<D>::kTokens>(v_tile, from, args.kv, true, place, simdgroup, 4,
                                              lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_float8x8 scores[PrefillTile<D>::kTokens / 8];
    simdgroup_half8x8 weights[PrefillTile<D>::kTokens / 8];
    multiply_keys<D, PrefillTile<D>::kTokens>(scores, state, k_tile);
    weigh_scores<D, PrefillTile<D>::kTokens>(weights, scores, state, first, visible, lane, args);
    add_values<D, PrefillTile<D>::kTokens>(state, weights, v_tile);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  float total = row_sum(state.total), factor = 1.0f;
  if (args.has_sinks != 0) {
    const float sink = sinks[head], largest = fmax(state.largest, sink);
    factor = precise::exp(state.largest - largest);
    total = total * factor + precise::exp(sink - largest);
  }
  if (total == 0) total = 1;  // a query that sees nothing gets zeros
  if (own_query >= n_queries) return;
  const ulong row = tile.first_row + first_query + own_query;
  device float* to = out + (row * args.n_heads + head) * D + matrix_place(lane).col;
  UNROLL
  for (uint d = 0; d < D / 8; ++d) {
    const float first = state.out[d].thread_elements()[0] * factor / total;
    const float second = state.out[d].thread_elements()[1] * factor / total;
    *(device float2*)(to + d * 8) = float2(first, second);
  }
}

INSTANCE(prefill_attention<f16, 16>)
INSTANCE(prefill_attention<f16, 32>)
INSTANCE(prefill_attention<f16, 64>)
INSTANCE(prefill_attention<f16, 80>)
INSTANCE(prefill_attention<f16, 96>)
INSTANCE(prefill_attention<f16, 128>)
INSTANCE(prefill_attention<f16, 256>)
INSTANCE(prefill_attention<q8, 16>)
INSTANCE(prefill_attention<q8, 32>)
INSTANCE(prefill_attention<q8, 64>)
INSTANCE(prefill_attention<q8, 80>)
INSTANCE(prefill_attention<q8, 96>)
INSTANCE(prefill_attention<q8, 128>)
INSTANCE(prefill_attention<q8, 256>)
INSTANCE(prefill_attention<q4, 16>)
INSTANCE(prefill_attention<q4, 32>)
INSTANCE(prefill_attention<q4, 64>)
INSTANCE(prefill_attention<q4, 80>)
INSTANCE(prefill_attention<q4, 96>)
INSTANCE(prefill_attention<q4, 128>)
INSTANCE(prefill_attention<q4, 256>)
