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

// Rows of the weight in a group of tiles. Blocks that run together share the rows of a group and
// the tokens of some tiles, about as many bytes of each, which stay in L2.
constexpr u32 kGroupRows = 2048;

// Tile i: groups of rows one after another; in a group, all tiles of the first 128 tokens, then of
// the next.
template <u32 kTileRows>
DEVICE TileAt tile_in_groups(u32 i, u32 rows, u32 tokens) {
  constexpr u32 kGroup = kGroupRows / kTileRows;
  const u32 row_tiles = (rows + kTileRows - 1) / kTileRows;
  const u32 token_tiles = (tokens + kTileTokens - 1) / kTileTokens;
  const u32 group = i / (kGroup * token_tiles), place = i % (kGroup * token_tiles);
  const u32 width = min(kGroup, row_tiles - group * kGroup);
  const u32 first = place / width * kTileTokens;
  return {first, min(kTileTokens, tokens - first), (group * kGroup + place % width) * kTileRows, 0};
}

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
