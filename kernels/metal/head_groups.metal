// The lists of moe_group.metal for a product with a block of rows per head: every token takes all
// heads, in order, so no sorting is needed. Buffers and geometry: arguments.h.

#include "prelude.h"

kernel void head_groups(device MoeTile* tiles [[buffer(0)]], device uint* n_tiles [[buffer(1)]],
                        device uint* pairs [[buffer(2)]], device const uint* n_tokens [[buffer(3)]],
                        constant HeadGroupsArgs& args [[buffer(4)]],
                        uint block [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]]) {
  const uint i = block * 256 + thread_index;
  const uint tokens = *n_tokens, n_heads = args.n_heads, tile_tokens = args.tile_tokens;
  const uint head_tiles = (tokens + tile_tokens - 1) / tile_tokens;
  if (i == 0) *n_tiles = n_heads * head_tiles;
  if (i < n_heads * head_tiles) {
    const uint head = i / head_tiles, first = i % head_tiles * tile_tokens;
    const MoeTile tile = {head, head * tokens + first, min(tile_tokens, tokens - first)};
    tiles[i] = tile;
  }
  if (i < n_heads * tokens) pairs[i] = i % tokens * n_heads + i / tokens;
}
