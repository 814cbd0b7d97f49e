// Products of prompts with quantised weights on SM90:
// out = residual + alpha * activation(x weight^T + bias).
//
//   x converted to T, in the order of columns of the format's chunks, as tensor [tokens,
//   padded_cols]; boxes of 64 columns by 128 tokens; weight: rows in the format F
//   out [.., out_stride] F32
//   grid: at most one block a multiprocessor; block 384; dynamic shared:
//   QuantizedTile::kSharedBytes
//
// The method is that of wgmma_quantized.cuh.

#include "row_set.cuh"
#include "wgmma_quantized.cuh"

template <class F, class T, u32 kProducts>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    wgmma_quantized_gemm(ProductOperands a, Epilogue e, FA_GRID_CONSTANT sm90::TensorMap x) {
  using Tile = QuantizedTile<kProducts>;
  begin_tiles<Tile>(x);
  wait_for_previous_kernel();
  __syncthreads();
  const u32 tokens = *a.set.count, rows = a.weight.rows;
  const u32 n_tiles = ((tokens + kTileTokens - 1) / kTileTokens) *
                      ((rows + Tile::kRows - 1) / Tile::kRows);
  compute_quantized_tiles<F, T, kProducts>(
      x, a.weight, [=] { return n_tiles; }, a.x.padded_cols / kStepCols,
      [=](u32 i) { return tile_in_groups<Tile::kRows>(i, rows, tokens); },
      [&](const TileAt& tile) {
        return TileOutput{a.out, a.x.scale + tile.first_token, e, rows};
      },
      [&](const TileAt& tile, u32 token) { return row_of_set(a.set, tile.first_token + token); });
}

INSTANCE(wgmma_quantized_gemm<FormatQ8_0, f16, 1>)
INSTANCE(wgmma_quantized_gemm<FormatQ8_0, f16, 2>)
INSTANCE(wgmma_quantized_gemm<FormatFP8, f16, 1>)
INSTANCE(wgmma_quantized_gemm<FormatFP8, f16, 2>)
INSTANCE(wgmma_quantized_gemm<FormatQ4_0, f16, 1>)
INSTANCE(wgmma_quantized_gemm<FormatQ4_0, f16, 2>)
INSTANCE(wgmma_quantized_gemm<FormatQ4_K, f16, 1>)
INSTANCE(wgmma_quantized_gemm<FormatQ4_K, f16, 2>)
INSTANCE(wgmma_quantized_gemm<FormatQ6_K, f16, 1>)
INSTANCE(wgmma_quantized_gemm<FormatQ6_K, f16, 2>)
