// Products of prompts with 16-bit weights on SM90: out = residual + alpha * activation(x weight^T +
// bias).
//
//   x converted to T, as tensor [tokens, padded_cols]; weight as tensor [rows, cols]; boxes of 64
//   columns by 128 tokens, and by a tile's rows
//   out [.., out_stride] F32
//   grid: at most one block a multiprocessor; block 384; dynamic shared: WgmmaTile::kSharedBytes
//
// The method is that of wgmma_gemm.cuh.

#include "row_set.cuh"
#include "wgmma_gemm.cuh"

template <class T, u32 kProducts>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    wgmma_gemm(ProductOperands a, Epilogue e, FA_GRID_CONSTANT sm90::TensorMap x,
               FA_GRID_CONSTANT sm90::TensorMap weight) {
  using Tile = WgmmaTile<kProducts>;
  begin_tiles<Tile>(x, weight);
  wait_for_previous_kernel();
  __syncthreads();
  const u32 tokens = *a.set.count, rows = a.weight.rows;
  const u32 n_tiles = ((tokens + kTileTokens - 1) / kTileTokens) *
                      ((rows + Tile::kRows - 1) / Tile::kRows);
  compute_tiles<T, kProducts>(
      x, weight, n_tiles, a.x.padded_cols / kTileCols,
      [=](u32 i) { return tile_in_groups<Tile::kRows>(i, rows, tokens); },
      [&](const TileAt& tile) {
        return TileOutput{a.out, a.x.scale + tile.first_token, e, rows};
      },
      [&](const TileAt& tile, u32 token) { return row_of_set(a.set, tile.first_token + token); });
}

INSTANCE(wgmma_gemm<f16, 1>)
INSTANCE(wgmma_gemm<f16, 2>)
INSTANCE(wgmma_gemm<bf16, 1>)
INSTANCE(wgmma_gemm<bf16, 2>)
