// Products of prompts with the chosen experts on SM90, for 16-bit weights: out[pair] = x of the
// pair's token (or of the pair itself) times the expert's block of the weight, plus its bias.
//
//   x of convert_pairs, in the order of the pairs, as tensor [pairs, padded_cols]; weight as tensor
//   [experts, rows, cols]; boxes of 64 columns by 128 pairs, and by a tile's rows
//   out [.. * top_k, rows] F32: pairs as in moe.cuh, 128 a tile
//   grid: at most one block a multiprocessor; block 384; dynamic shared: WgmmaTile::kSharedBytes
//
// The method is that of wgmma_gemm.cuh. The tiles of an expert's pairs follow each other, each with
// all rows, so that blocks that run together share pairs and weights.

#include "moe.cuh"
#include "wgmma_gemm.cuh"

template <class T, u32 kProducts>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    wgmma_grouped_gemm(ProductOperands a, ExpertPairs e, FA_GRID_CONSTANT sm90::TensorMap x,
                       FA_GRID_CONSTANT sm90::TensorMap weight) {
  using Tile = WgmmaTile<kProducts>;
  begin_tiles<Tile>(x, weight);
  wait_for_previous_kernel();
  __syncthreads();
  const u32 rows = a.weight.rows, row_tiles = (rows + Tile::kRows - 1) / Tile::kRows;
  compute_tiles<T, kProducts>(
      x, weight, *e.n_tiles * row_tiles, a.x.padded_cols / kTileCols,
      [&](u32 i) { return tile_of_pairs(e, i, row_tiles, Tile::kRows); },
      [&](const TileAt& tile) { return output_of_pairs(a, e, tile); },
      [&](const TileAt& tile, u32 pair) {
        return out_row_of_pair(a.set, e.pairs[tile.first_token + pair], e.top_k);
      });
}

INSTANCE(wgmma_grouped_gemm<f16, 1>)
INSTANCE(wgmma_grouped_gemm<f16, 2>)
INSTANCE(wgmma_grouped_gemm<bf16, 1>)
INSTANCE(wgmma_grouped_gemm<bf16, 2>)
