// Products of prompts with the chosen experts on SM90, for quantised weights: out[pair] = x of the
// pair's token (or of the pair itself) times the expert's block of the weight, plus its bias.
//
//   x of convert_pairs, in the order of the pairs and of columns of the format's chunks, as tensor
//   [pairs, padded_cols]; boxes of 64 columns by 128 pairs; weight: rows in the format F
//   out [.. * top_k, rows] F32: pairs as in moe.cuh, 128 a tile
//   grid: at most one block a multiprocessor; block 384; dynamic shared:
//   QuantizedTile::kSharedBytes
//
// The method is that of wgmma_quantized.cuh, the order of tiles that of wgmma_grouped_gemm.cu.

#include "moe.cuh"
#include "wgmma_quantized.cuh"

template <class F, class T, u32 kProducts>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    wgmma_grouped_quantized_gemm(ProductOperands a, ExpertPairs e,
                                 FA_GRID_CONSTANT sm90::TensorMap x) {
  using Tile = QuantizedTile<kProducts>;
  begin_tiles<Tile>(x);
  wait_for_previous_kernel();
  __syncthreads();
  const u32 rows = a.weight.rows, row_tiles = (rows + Tile::kRows - 1) / Tile::kRows;
  compute_quantized_tiles<F, T, kProducts>(
      x, a.weight, [&] { return *e.n_tiles * row_tiles; }, a.x.padded_cols / kStepCols,
      [&](u32 i) { return tile_of_pairs(e, i, row_tiles, Tile::kRows); },
      [&](const TileAt& tile) { return output_of_pairs(a, e, tile); },
      [&](const TileAt& tile, u32 pair) {
        return out_row_of_pair(a.set, e.pairs[tile.first_token + pair], e.top_k);
      });
}

INSTANCE(wgmma_grouped_quantized_gemm<FormatQ8_0, f16, 1>)
INSTANCE(wgmma_grouped_quantized_gemm<FormatQ8_0, f16, 2>)
INSTANCE(wgmma_grouped_quantized_gemm<FormatFP8, f16, 1>)
INSTANCE(wgmma_grouped_quantized_gemm<FormatFP8, f16, 2>)
INSTANCE(wgmma_grouped_quantized_gemm<FormatQ4_0, f16, 1>)
INSTANCE(wgmma_grouped_quantized_gemm<FormatQ4_0, f16, 2>)
INSTANCE(wgmma_grouped_quantized_gemm<FormatQ4_K, f16, 1>)
INSTANCE(wgmma_grouped_quantized_gemm<FormatQ4_K, f16, 2>)
// Its wide tile would take more registers than there are.
INSTANCE(wgmma_grouped_quantized_gemm<FormatQ6_K, f16, 1>)
