// The lists of moe_group.cu for a product with a block of rows per head: every token takes all
// heads, in order, so no sorting is needed.
//
//   pairs [tokens * n_heads] as moe.cuh numbers them; tiles of at most tile_tokens pairs
//   grid: tokens * n_heads / 256, never fewer than the tiles; block 256

#include "moe.cuh"

KERNEL head_groups(MoeTile* tiles, u32* n_tiles, u32* pairs, const u32* n_tokens, u32 n_heads,
                   u32 tile_tokens) {
  wait_for_previous_kernel();
  const u32 tokens = *n_tokens, head_tiles = (tokens + tile_tokens - 1) / tile_tokens;
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) *n_tiles = n_heads * head_tiles;
  if (i < n_heads * head_tiles) {
    const u32 head = i / head_tiles, first = i % head_tiles * tile_tokens;
    tiles[i] = {head, head * tokens + first, min(tile_tokens, tokens - first)};
  }
  if (i < n_heads * tokens) pairs[i] = i % tokens * n_heads + i / tokens;
}

INSTANCE(head_groups)
