// Products with the chosen experts of a weight in F32: out[pair] = x of the pair's token (or of the
// pair itself) times the expert's block of the weight, plus its bias.
//
//   x [.., cols] F32 when x_shared, else [.. * top_k, cols]; out [.. * top_k, rows]: pairs as in
//   moe.cuh, in tiles of at most `tokens`
//   grid: (rows / (8 / split * 2), maximum number of tiles); block 256
//   moves: the weights of the chosen experts, once per `tokens` pairs of an expert
//
// The method is that of matvec.cuh.

#include "matvec.cuh"
#include "moe.cuh"

template <u32 tokens>
__global__ void __launch_bounds__(256, matvec_blocks_per_sm(tokens))
    grouped_matvec(ProductOperands a, ExpertPairs e, u32 split) {
  wait_for_previous_kernel();
  if (blockIdx.y >= *e.n_tiles) return;
  const MoeTile tile = e.tiles[blockIdx.y];
  const float* x = static_cast<const float*>(a.x.data);
  TokenRows<tokens> token_rows;
#pragma unroll
  for (u32 t = 0; t < tokens; ++t) {
    const u32 pair = e.pairs[tile.first + min(t, tile.count - 1)];
    token_rows.row[t] = x + x_row_of_pair(a.set, e, pair) * a.weight.cols;
  }
  multiply_rows<tokens>(rows_of_expert(a.weight, tile.expert), token_rows, split,
                        [&](u32 row, u32 t, float product) {
                          if (t >= tile.count) return;
                          store_of_pair(a, e, tile.expert, e.pairs[tile.first + t], row, product);
                        });
}

INSTANCE(grouped_matvec<1>)
INSTANCE(grouped_matvec<2>)
INSTANCE(grouped_matvec<4>)
INSTANCE(grouped_matvec<8>)
