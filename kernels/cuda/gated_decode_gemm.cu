// The gated unit of a decode step in one launch: out = unit(gate x, up x). The weight is the rows
// of `gate`, followed by the rows of `up`.
//
//   x, weight: as in decode_gemm.cu, with 2 * width rows; out [.., width] F32
//   grid, block and dynamic shared memory: as in decode_gemm.cu, for 2 * width rows in whole tiles
//   moves: the weight, once per tile of tokens; the intermediate of decode_gemm and glu, 16 bytes
//   per output, stays in shared memory
//
// Every sum is that of decode_gemm.cu.

#include "decode_gemm.cuh"

// Stores a gated unit for multiply_tile.
struct StoreUnit {
  const ProductOperands& a;
  const u32 unit;
  struct Loaded {
    float gate, up;
    u64 at;
    bool exists;
  };
  template <class SumOf>
  DEVICE_MEMBER Loaded begin(u32 first, u32 i, u32 token, SumOf sum_of) const {
    const u32 width = a.weight.rows / 2, output = first / 2 + i, gate = gate_in_tile(i);
    return {sum_of(gate), sum_of(gate + 8), u64(token) * width + output, output < width};
  }
  DEVICE_MEMBER void finish(const Loaded& loaded) const {
    if (loaded.exists) a.out[loaded.at] = gated_unit(unit, loaded.gate, loaded.up);
  }
};

template <class F, class T, u32 token_tiles>
__global__ void __launch_bounds__(kProductThreads<F, token_tiles>, kResident<F, token_tiles>)
    gated_decode_gemm(ARGUMENT(ProductOperands) a, u32 unit, ARGUMENT(Tiling) tiling,
                      ARGUMENT(SharedConversion) conversion) {
  DYNAMIC_SHARED(uint4, memory);
  const u32 width = a.weight.rows / 2;
  multiply_tile<F, T, token_tiles>(memory, a, tiling, conversion, round_up(width, 8) * 2, 2,
                                   [=](u32 i) { return gated_row(i, width); }, StoreUnit{a, unit});
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
