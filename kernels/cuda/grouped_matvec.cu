// Products with the chosen experts of a weight in F32: out[pair] = x of the pair's token (or of the
// pair itself) times the expert's block of the weight, plus its bias.
//
//   x [.., cols] when x_shared, else [.. * top_k, cols]; out [.. * top_k, expert_rows], for the
//   tokens of a set: pairs as in moe.cuh
//   weight: n_experts * expert_rows rows; bias [n_experts, expert_rows] or null
//   tiles, pairs: of moe_group with tile_tokens = tokens
//   grid: (expert_rows / (8 / split * 2), maximum number of tiles); block 256
//   moves: the weights of the chosen experts, once per `tokens` pairs of an expert
//
// The method is that of matvec.cuh.

#include "matvec.cuh"
#include "moe.cuh"

template <u32 tokens>
__global__ void __launch_bounds__(256, matvec_blocks_per_sm(tokens))
    grouped_matvec(float* out, const float* x, u32 x_shared, const u8* weight, u64 row_stride,
                   u32 expert_rows, u32 cols, RowSet set, u32 top_k, const MoeTile* tiles,
                   const u32* n_tiles, const u32* pairs, const float* bias, u32 split) {
  wait_for_previous_kernel();
  if (blockIdx.y >= *n_tiles) return;
  const MoeTile tile = tiles[blockIdx.y];
  TokenRows<tokens> token_rows;
#pragma unroll
  for (u32 t = 0; t < tokens; ++t) {
    const u32 pair = pairs[tile.first + min(t, tile.count - 1)];
    const u64 row = x_shared ? row_of_set(set, pair / top_k) : out_row_of_pair(set, pair, top_k);
    token_rows.row[t] = x + row * cols;
  }
  const u64 first_row = u64(tile.expert) * expert_rows;
  multiply_rows<tokens>(
      {weight + first_row * row_stride, row_stride, expert_rows, cols}, token_rows, split,
      [&](u32 row, u32 t, float product) {
        if (t >= tile.count) return;
        const float sum = bias ? product + bias[first_row + row] : product;
        out[out_row_of_pair(set, pairs[tile.first + t], top_k) * expert_rows + row] = sum;
      });
}

INSTANCE(grouped_matvec<1>)
INSTANCE(grouped_matvec<2>)
INSTANCE(grouped_matvec<4>)
INSTANCE(grouped_matvec<8>)
