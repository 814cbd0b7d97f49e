// The gated unit of a decode step in one launch: out = unit(gate x, up x). The weight is the rows
// of `gate`, followed by the rows of `up`.
//
//   x, weight: as in decode_gemm.cu, with 2 * width rows; out [.., width] F32
//   grid: (tokens / tile, width / half of the tile's rows, blocks that share the columns); block
//   256; dynamic shared as in decode_gemm.cu
//   moves: the weight, once per tile of tokens; the intermediate of decode_gemm and glu, 16 bytes
//   per output, stays in shared memory
//
// Every sum is that of decode_gemm.cu.

#include "decode_gemm.cuh"

template <class F, class T, u32 token_tiles>
__global__ void __launch_bounds__(kThreads, kResident<F, token_tiles>)
    gated_decode_gemm(ARGUMENT(ProductOperands) a, u32 unit, ARGUMENT(ColumnSplit) split,
                      ARGUMENT(NextWeights) next) {
  // One token is rounded by each block; more rows would leave the last multiprocessors fewer.
  using Tile = DecodeTile<token_tiles, token_tiles == 0 ? 1 : kWeightRowTiles<F, token_tiles>>;
  constexpr u32 kOutputs = Tile::kRows / 2;
  DYNAMIC_SHARED(uint4, memory);
  const u32 first = blockIdx.y * kOutputs, width = a.weight.rows / 2;
  multiply_tile<F, T, Tile>(
      memory, a, split, next, [&](u32 i) { return gated_row(first, i, width); }, kOutputs,
      [&](u32 i, u32 token, auto sum_of) {
        if (first + i >= width) return;
        const u32 gate = gate_in_tile(i);
        a.out[u64(token) * width + first + i] = gated_unit(unit, sum_of(gate), sum_of(gate + 8));
      });
}

INSTANCE(gated_decode_gemm<FormatF16, f16, 0>)
INSTANCE(gated_decode_gemm<FormatF16, f16, 1>)
INSTANCE(gated_decode_gemm<FormatF16, f16, 4>)
INSTANCE(gated_decode_gemm<FormatF16, f16, 8>)
INSTANCE(gated_decode_gemm<FormatBF16, bf16, 0>)
INSTANCE(gated_decode_gemm<FormatBF16, bf16, 1>)
INSTANCE(gated_decode_gemm<FormatBF16, bf16, 4>)
INSTANCE(gated_decode_gemm<FormatBF16, bf16, 8>)
INSTANCE(gated_decode_gemm<FormatQ8_0, f16, 0>)
INSTANCE(gated_decode_gemm<FormatQ8_0, f16, 1>)
INSTANCE(gated_decode_gemm<FormatQ8_0, f16, 4>)
INSTANCE(gated_decode_gemm<FormatQ8_0, f16, 8>)
INSTANCE(gated_decode_gemm<FormatFP8, f16, 0>)
INSTANCE(gated_decode_gemm<FormatFP8, f16, 1>)
INSTANCE(gated_decode_gemm<FormatFP8, f16, 4>)
INSTANCE(gated_decode_gemm<FormatFP8, f16, 8>)
INSTANCE(gated_decode_gemm<FormatQ4_0, f16, 0>)
INSTANCE(gated_decode_gemm<FormatQ4_0, f16, 1>)
INSTANCE(gated_decode_gemm<FormatQ4_0, f16, 4>)
INSTANCE(gated_decode_gemm<FormatQ4_0, f16, 8>)
INSTANCE(gated_decode_gemm<FormatQ4_K, f16, 0>)
INSTANCE(gated_decode_gemm<FormatQ4_K, f16, 1>)
INSTANCE(gated_decode_gemm<FormatQ4_K, f16, 4>)
INSTANCE(gated_decode_gemm<FormatQ4_K, f16, 8>)
INSTANCE(gated_decode_gemm<FormatQ6_K, f16, 0>)
INSTANCE(gated_decode_gemm<FormatQ6_K, f16, 1>)
INSTANCE(gated_decode_gemm<FormatQ6_K, f16, 4>)
INSTANCE(gated_decode_gemm<FormatQ6_K, f16, 8>)
