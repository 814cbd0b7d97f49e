// Groups the pairs of tokens and experts by expert, so that a product reads each expert's weights
// once for several tokens.
//
//   route [.., 2 top_k] of moe_route, read at a set of rows; pairs [tokens * top_k] numbered as in
//   moe.cuh; tiles of at most tile_tokens pairs
//   grid: 1; block: whole warps; dynamic shared: ((warps + 2) * n_experts + 2) * 4 bytes
//
// A stable counting sort: every warp counts the experts of its share of the pairs, the counts are
// added up, and each warp writes its pairs to their positions. Pairs of an expert keep their order
// for any number of warps.

#include "moe.cuh"
#include "warp.cuh"

// Replaces values[i] by the sum of the values before it; values[n] becomes the total. Called by a
// whole warp.
DEVICE void exclusive_sums(u32* values, u32 n) {
  u32 before = 0;
  for (u32 first = 0; first < n; first += kWarp) {
    const u32 i = first + lane_id();
    const u32 own = i < n ? values[i] : 0;
    const u32 sum = warp_prefix_sum(own);
    if (i < n) values[i] = before + sum - own;
    before += __shfl_sync(kAllLanes, sum, 31);
  }
  if (lane_id() == 0) values[n] = before;
}

LARGE_KERNEL moe_group(MoeGroup a) {
  wait_for_previous_kernel();
  DYNAMIC_SHARED(u32, counts);  // [warps][n_experts]
  const RowSet set = {a.n_tokens, a.has_row_list ? a.row_list : nullptr};
  const u32 n_warps = blockDim.x / kWarp;
  u32* first_pair = counts + n_warps * a.n_experts;  // [n_experts + 1], per expert
  u32* first_tile = first_pair + a.n_experts + 1;    // [n_experts + 1], per expert
  u32* own = counts + warp_id() * a.n_experts;
  const u32 n_pairs = *set.count * a.top_k, share = (n_pairs + n_warps - 1) / n_warps;
  const u32 begin = min(warp_id() * share, n_pairs), end = min(begin + share, n_pairs);
  const auto expert_of = [&](u32 pair) {
    return u32(a.route[u64(row_of_set(set, pair / a.top_k)) * 2 * a.top_k + pair % a.top_k]);
  };

  for (u32 e = lane_id(); e < a.n_experts; e += kWarp) own[e] = 0;
  __syncwarp();
  for (u32 i = begin + lane_id(); i < end; i += kWarp) atomicAdd(&own[expert_of(i)], 1u);
  __syncthreads();
  // Replace the count of each warp by the sum of the counts of the warps before it.
  for (u32 e = threadIdx.x; e < a.n_experts; e += blockDim.x) {
    u32 before = 0;
    for (u32 w = 0; w < n_warps; ++w) {
      const u32 count = counts[w * a.n_experts + e];
      counts[w * a.n_experts + e] = before;
      before += count;
    }
    first_pair[e] = before;
    first_tile[e] = (before + a.tile_tokens - 1) / a.tile_tokens;
  }
  __syncthreads();
  if (warp_id() == 0) {
    exclusive_sums(first_pair, a.n_experts);
    exclusive_sums(first_tile, a.n_experts);
  }
  __syncthreads();

  if (threadIdx.x == 0) *a.n_tiles = first_tile[a.n_experts];
  for (u32 e = threadIdx.x; e < a.n_experts; e += blockDim.x) {
    u32 first = first_pair[e];
    for (u32 t = first_tile[e]; t < first_tile[e + 1]; ++t, first += a.tile_tokens) {
      a.tiles[t] = {e, first, min(a.tile_tokens, first_pair[e + 1] - first)};
    }
  }
  for (u32 first = begin; first < end; first += kWarp) {
    const u32 i = first + lane_id();
    const u32 expert = i < end ? expert_of(i) : a.n_experts;
    const u32 alike = __match_any_sync(kAllLanes, expert);
    const u32 before = __popc(alike & ((1u << lane_id()) - 1));
    if (i < end) a.pairs[first_pair[expert] + own[expert] + before] = i;
    __syncwarp();
    if (i < end && before == 0) own[expert] += __popc(alike);
    __syncwarp();
  }
}

INSTANCE(moe_group)
