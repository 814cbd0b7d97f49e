// The lists of moe_group.cu for a product with a block of rows per head: every token takes all
// heads, in order, so no sorting is needed.
//
//   pairs [tokens * n_heads] as moe.cuh numbers them; tiles of at most tile_tokens pairs
//   grid: tokens * n_heads / 256, never fewer than the tiles; block 256

#include "moe.cuh"

KERNEL head_groups(HeadGroups a) {
  wait_for_previous_kernel();
  const u32 tokens = *a.n_tokens, head_tiles = (tokens + a.tile_tokens - 1) / a.tile_tokens;
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) *a.n_tiles = a.n_heads * head_tiles;
  if (i < a.n_heads * head_tiles) {
    const u32 head = i / head_tiles, first = i % head_tiles * a.tile_tokens;
    a.tiles[i] = {head, head * tokens + first, min(a.tile_tokens, tokens - first)};
  }
  if (i < a.n_heads * tokens) a.pairs[i] = i % tokens * a.n_heads + i / tokens;
}

INSTANCE(head_groups)
