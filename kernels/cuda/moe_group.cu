// Groups the pairs of tokens and experts by expert, so that a product reads each expert's weights
// once for several tokens.
//
//   route [tokens, 2 top_k] of moe_route; pairs [tokens * top_k]; tiles of at most tile_tokens
//   pairs grid: 1; block: whole warps; dynamic shared: (2 n_experts + 1) * 4 bytes
//
// Counts the pairs of each expert, adds the counts up, and scatters. Which pairs of an expert share
// a tile depends on the order of atomic additions, but no product depends on its neighbours.

#include "moe.cuh"
#include "warp.cuh"

// values[n] becomes the sums of all before it, values[n - 1] included in the result.
DEVICE u32 exclusive_sums(u32* values, u32 n) {
  u32 before = 0;
  for (u32 first = 0; first < n; first += kWarp) {
    const u32 i = first + lane_id();
    const u32 own = i < n ? values[i] : 0;
    const u32 sum = warp_prefix_sum(own);
    if (i < n) values[i] = before + sum - own;
    before += __shfl_sync(kAllLanes, sum, 31);
  }
  return before;
}

LARGE_KERNEL moe_group(MoeTile* tiles, u32* n_tiles, u32* pairs, const float* route,
                       const u32* n_tokens, u32 n_experts, u32 top_k, u32 tile_tokens) {
  wait_for_previous_kernel();
  DYNAMIC_SHARED(u32, counts);
  u32* first_tile = counts + n_experts;
  SHARED(u32, total_tiles, [1]);
  const u32 n_pairs = *n_tokens * top_k;

  for (u32 e = threadIdx.x; e < n_experts; e += blockDim.x) counts[e] = 0;
  __syncthreads();
  for (u32 i = threadIdx.x; i < n_pairs; i += blockDim.x) {
    atomicAdd(&counts[u32(route[u64(i / top_k) * 2 * top_k + i % top_k])], 1u);
  }
  __syncthreads();
  for (u32 e = threadIdx.x; e < n_experts; e += blockDim.x) {
    first_tile[e] = (counts[e] + tile_tokens - 1) / tile_tokens;
  }
  __syncthreads();
  if (warp_id() == 0) {
    const u32 n = exclusive_sums(first_tile, n_experts);
    if (lane_id() == 0) {
      first_tile[n_experts] = n;
      total_tiles[0] = n;
    }
    exclusive_sums(counts, n_experts);
  }
  __syncthreads();
  if (threadIdx.x == 0) *n_tiles = total_tiles[0];

  // From here on counts[e] is where the next pair of expert e goes, in the end where the last went.
  for (u32 e = threadIdx.x; e < n_experts; e += blockDim.x) {
    const u32 begin = counts[e];
    const u32 end = e + 1 < n_experts ? counts[e + 1] : n_pairs;
    for (u32 t = first_tile[e]; t < first_tile[e + 1]; ++t) {
      const u32 first = begin + (t - first_tile[e]) * tile_tokens;
      tiles[t] = {e, first, min(tile_tokens, end - first)};
    }
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < n_pairs; i += blockDim.x) {
    const u32 expert = u32(route[u64(i / top_k) * 2 * top_k + i % top_k]);
    pairs[atomicAdd(&counts[expert], 1u)] = i;
  }
}

INSTANCE(moe_group)
