// The gated unit of a decode step in one launch: out = unit(gate x, up x). The weight is the rows
// of `gate`, followed by the rows of `up`.
//
//   x, weight: as in decode_gemm.cu, with 2 * width rows; out [.., width] F32
//   grid: as in decode_gemm.cu, for 2 * width rows in whole tiles; block 256; dynamic shared as in
//   decode_gemm.cu
//   moves: the weight, once per tile of tokens; the intermediate of decode_gemm and glu, 16 bytes
//   per output, stays in shared memory
//
// Every sum is that of decode_gemm.cu.

#include "decode_gemm.cuh"

template <class F, class T, u32 token_tiles, u32 row_tiles = kWeightRowTiles<F, token_tiles>>
__global__ void __launch_bounds__(kThreads, kResident<F, token_tiles>)
    gated_decode_gemm(ARGUMENT(ProductOperands) a, u32 unit, ARGUMENT(ColumnSplit) split) {
  using Tile = DecodeTile<token_tiles, row_tiles>;
  DYNAMIC_SHARED(uint4, memory);
  const u32 width = a.weight.rows / 2;
  multiply_tile<F, T, Tile>(
      memory, a, split, round_up(width, 8) * 2, 2,
      [=](u32 i) { return gated_row(i, width); },
      [&](u32 first, u32 i, u32 token, auto sum_of) {
        const u32 output = first / 2 + i, gate = gate_in_tile(i);
        if (output >= width) return;
        a.out[u64(token) * width + output] = gated_unit(unit, sum_of(gate), sum_of(gate + 8));
      });
}

INSTANCE(gated_decode_gemm<FormatF16, f16, 0>)
INSTANCE(gated_decode_gemm<FormatF16, f16, 1>)
INSTANCE(gated_decode_gemm<FormatF16, f16, 1, 0>)
INSTANCE(gated_decode_gemm<FormatF16, f16, 4>)
INSTANCE(gated_decode_gemm<FormatF16, f16, 8>)
INSTANCE(gated_decode_gemm<FormatBF16, bf16, 0>)
INSTANCE(gated_decode_gemm<FormatBF16, bf16, 1>)
INSTANCE(gated_decode_gemm<FormatBF16, bf16, 1, 0>)
INSTANCE(gated_decode_gemm<FormatBF16, bf16, 4>)
INSTANCE(gated_decode_gemm<FormatBF16, bf16, 8>)
INSTANCE(gated_decode_gemm<FormatQ8_0, f16, 0>)
INSTANCE(gated_decode_gemm<FormatQ8_0, f16, 1>)
INSTANCE(gated_decode_gemm<FormatQ8_0, f16, 1, 0>)
INSTANCE(gated_decode_gemm<FormatQ8_0, f16, 4>)
INSTANCE(gated_decode_gemm<FormatQ8_0, f16, 8>)
INSTANCE(gated_decode_gemm<FormatFP8, f16, 0>)
INSTANCE(gated_decode_gemm<FormatFP8, f16, 1>)
INSTANCE(gated_decode_gemm<FormatFP8, f16, 1, 0>)
INSTANCE(gated_decode_gemm<FormatFP8, f16, 4>)
INSTANCE(gated_decode_gemm<FormatFP8, f16, 8>)
INSTANCE(gated_decode_gemm<FormatQ4_0, f16, 0>)
INSTANCE(gated_decode_gemm<FormatQ4_0, f16, 1>)
INSTANCE(gated_decode_gemm<FormatQ4_0, f16, 1, 0>)
INSTANCE(gated_decode_gemm<FormatQ4_0, f16, 4>)
INSTANCE(gated_decode_gemm<FormatQ4_0, f16, 8>)
INSTANCE(gated_decode_gemm<FormatQ4_K, f16, 0>)
INSTANCE(gated_decode_gemm<FormatQ4_K, f16, 1>)
INSTANCE(gated_decode_gemm<FormatQ4_K, f16, 1, 0>)
INSTANCE(gated_decode_gemm<FormatQ4_K, f16, 4>)
INSTANCE(gated_decode_gemm<FormatQ4_K, f16, 8>)
INSTANCE(gated_decode_gemm<FormatQ6_K, f16, 0>)
INSTANCE(gated_decode_gemm<FormatQ6_K, f16, 1>)
INSTANCE(gated_decode_gemm<FormatQ6_K, f16, 1, 0>)
INSTANCE(gated_decode_gemm<FormatQ6_K, f16, 4>)
INSTANCE(gated_decode_gemm<FormatQ6_K, f16, 8>)
