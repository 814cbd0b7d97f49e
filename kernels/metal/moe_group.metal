// Groups the pairs of tokens and experts by expert, so that a product reads each expert's weights
// once for several tokens. Buffers and geometry: arguments.h.
//
// Counts the pairs of each expert, adds the counts up, and scatters. The assignment of an expert's
// pairs to tiles depends on the order of atomic additions, but no product depends on its
// neighbours.

#include "row_set.h"
#include "simd.h"

// Replaces each value by the sum of the values before it; returns the total. Called by a SIMD
// group.
inline uint exclusive_sums(threadgroup uint* values, uint n, uint lane) {
  uint before = 0;
  for (uint first = 0; first < n; first += kLanes) {
    const uint i = first + lane;
    const uint own = i < n ? values[i] : 0;
    const uint sum_before = simd_prefix_exclusive_sum(own);
    if (i < n) values[i] = before + sum_before;
    before += simd_sum(own);
  }
  return before;
}

inline uint count_one(threadgroup uint* counts, uint expert) {
  return atomic_fetch_add_explicit((threadgroup atomic_uint*)(counts + expert), 1u,
                                   memory_order_relaxed);
}

// The `i`-th pair of the tokens of a set.
inline uint pair_of(RowSet set, uint i, uint top_k) {
  return row_of(set, i / top_k) * top_k + i % top_k;
}

inline uint expert_of(device const float* route, uint pair, uint top_k) {
  return uint(route[ulong(pair / top_k) * 2 * top_k + pair % top_k]);
}

kernel void moe_group(device MoeTile* tiles [[buffer(0)]], device uint* n_tiles [[buffer(1)]],
                      device uint* pairs [[buffer(2)]], device const float* route [[buffer(3)]],
                      device const uint* n_tokens [[buffer(4)]],
                      device const uint* row_list [[buffer(5)]],
                      constant MoeGroupArgs& args [[buffer(6)]],
                      threadgroup uint* counts [[threadgroup(0)]],
                      uint thread_index [[thread_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]],
                      uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  const uint n_experts = args.n_experts, top_k = args.top_k, tile_tokens = args.tile_tokens;
  const RowSet set = row_set(n_tokens, row_list, args.has_row_list);
  const uint n_pairs = set.count * top_k, threads = n_simdgroups * kLanes;
  threadgroup uint* first_tile = counts + n_experts;  // [n_experts + 1]

  for (uint e = thread_index; e < n_experts; e += threads) counts[e] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = thread_index; i < n_pairs; i += threads) {
    count_one(counts, expert_of(route, pair_of(set, i, top_k), top_k));
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint e = thread_index; e < n_experts; e += threads) {
    first_tile[e] = (counts[e] + tile_tokens - 1) / tile_tokens;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup == 0) {
    const uint n = exclusive_sums(first_tile, n_experts, lane);
    if (lane == 0) {
      first_tile[n_experts] = n;
      *n_tiles = n;
    }
    exclusive_sums(counts, n_experts, lane);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  // From here on counts[e] is the place of the next pair of expert e.
  for (uint e = thread_index; e < n_experts; e += threads) {
    const uint begin = counts[e];
    const uint end = e + 1 < n_experts ? counts[e + 1] : n_pairs;
    for (uint t = first_tile[e]; t < first_tile[e + 1]; ++t) {
      const uint first = begin + (t - first_tile[e]) * tile_tokens;
      const MoeTile tile = {e, first, min(tile_tokens, end - first)};
      tiles[t] = tile;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = thread_index; i < n_pairs; i += threads) {
    const uint pair = pair_of(set, i, top_k);
    pairs[count_one(counts, expert_of(route, pair, top_k))] = pair;
  }
}
