// Products of a decode step: out = residual + alpha * activation(x weight^T + bias).
//
//   x: F32 rows for one token, else rows of T, which the kernel may first convert itself
//   weight: rows in the format F; out [.., out_stride] F32
//   grid: (tokens / tile, rows / 32, blocks that share the columns), or, with rings of weights,
//   (tokens / tile, blocks that share the tiles); block and dynamic shared memory: ProductTile of
//   csrc/cuda/plan_builder.h
//   moves: the weight, once per tile of tokens; neighbouring blocks read the same rows
//
// The method is that of decode_gemm.cuh.

#include "decode_gemm.cuh"

// Stores a product for multiply_tile.
struct StoreProduct {
  const ProductOperands& a;
  const Epilogue& e;
  struct Loaded {
    LoadedProduct product;
    bool exists;
  };
  template <class SumOf>
  DEVICE_MEMBER Loaded begin(u32 first, u32 i, u32 token, SumOf sum_of) const {
    // Rows beyond the last repeat the last; their results are not stored.
    const u32 last = a.weight.rows - 1;
    return {load_epilogue(e, sum_of(i), token, min(first + i, last)), first + i <= last};
  }
  DEVICE_MEMBER void finish(const Loaded& loaded) const {
    if (loaded.exists) store_product(a.out, e, loaded.product);
  }
};

template <class F, class T, u32 token_tiles>
__global__ void __launch_bounds__(kProductThreads<F, token_tiles>, kResident<F, token_tiles>)
    decode_gemm(ARGUMENT(ProductOperands) a, ARGUMENT(Epilogue) e, ARGUMENT(Tiling) tiling,
                ARGUMENT(SharedConversion) conversion) {
  DYNAMIC_SHARED(uint4, memory);
  const u32 rows = a.weight.rows;
  multiply_tile<F, T, token_tiles>(memory, a, tiling, conversion, rows, 1,
                                   [=](u32 i) { return min(i, rows - 1); }, StoreProduct{a, e});
}

INSTANCE(decode_gemm<FormatF16, f16, 0>)
INSTANCE(decode_gemm<FormatF16, f16, 1>)
INSTANCE(decode_gemm<FormatF16, f16, 4>)
INSTANCE(decode_gemm<FormatF16, f16, 8>)
INSTANCE(decode_gemm<FormatBF16, bf16, 0>)
INSTANCE(decode_gemm<FormatBF16, bf16, 1>)
INSTANCE(decode_gemm<FormatBF16, bf16, 4>)
INSTANCE(decode_gemm<FormatBF16, bf16, 8>)
INSTANCE(decode_gemm<FormatQ8_0, f16, 0>)
INSTANCE(decode_gemm<FormatQ8_0, f16, 1>)
INSTANCE(decode_gemm<FormatQ8_0, f16, 4>)
INSTANCE(decode_gemm<FormatQ8_0, f16, 8>)
INSTANCE(decode_gemm<FormatFP8, f16, 0>)
INSTANCE(decode_gemm<FormatFP8, f16, 1>)
INSTANCE(decode_gemm<FormatFP8, f16, 4>)
INSTANCE(decode_gemm<FormatFP8, f16, 8>)
INSTANCE(decode_gemm<FormatQ4_0, f16, 0>)
INSTANCE(decode_gemm<FormatQ4_0, f16, 1>)
INSTANCE(decode_gemm<FormatQ4_0, f16, 4>)
INSTANCE(decode_gemm<FormatQ4_0, f16, 8>)
INSTANCE(decode_gemm<FormatQ4_K, f16, 0>)
INSTANCE(decode_gemm<FormatQ4_K, f16, 1>)
INSTANCE(decode_gemm<FormatQ4_K, f16, 4>)
INSTANCE(decode_gemm<FormatQ4_K, f16, 8>)
INSTANCE(decode_gemm<FormatQ6_K, f16, 0>)
INSTANCE(decode_gemm<FormatQ6_K, f16, 1>)
INSTANCE(decode_gemm<FormatQ6_K, f16, 4>)
INSTANCE(decode_gemm<FormatQ6_K, f16, 8>)
INSTANCE(decode_gemm<Blocks<3>, f16, 0>)
INSTANCE(decode_gemm<Blocks<3>, f16, 1>)
INSTANCE(decode_gemm<Blocks<6>, f16, 0>)
INSTANCE(decode_gemm<Blocks<6>, f16, 1>)
INSTANCE(decode_gemm<Blocks<7>, f16, 0>)
INSTANCE(decode_gemm<Blocks<7>, f16, 1>)
INSTANCE(decode_gemm<Blocks<10>, f16, 0>)
INSTANCE(decode_gemm<Blocks<10>, f16, 1>)
INSTANCE(decode_gemm<Blocks<11>, f16, 0>)
INSTANCE(decode_gemm<Blocks<11>, f16, 1>)
INSTANCE(decode_gemm<Blocks<13>, f16, 0>)
INSTANCE(decode_gemm<Blocks<13>, f16, 1>)
INSTANCE(decode_gemm<Blocks<16>, f16, 0>)
INSTANCE(decode_gemm<Blocks<16>, f16, 1>)
INSTANCE(decode_gemm<Blocks<17>, f16, 0>)
INSTANCE(decode_gemm<Blocks<17>, f16, 1>)
INSTANCE(decode_gemm<Blocks<18>, f16, 0>)
INSTANCE(decode_gemm<Blocks<18>, f16, 1>)
INSTANCE(decode_gemm<Blocks<19>, f16, 0>)
INSTANCE(decode_gemm<Blocks<19>, f16, 1>)
INSTANCE(decode_gemm<Blocks<20>, f16, 0>)
INSTANCE(decode_gemm<Blocks<20>, f16, 1>)
INSTANCE(decode_gemm<Blocks<21>, f16, 0>)
INSTANCE(decode_gemm<Blocks<21>, f16, 1>)
INSTANCE(decode_gemm<Blocks<22>, f16, 0>)
INSTANCE(decode_gemm<Blocks<22>, f16, 1>)
INSTANCE(decode_gemm<Blocks<23>, f16, 0>)
INSTANCE(decode_gemm<Blocks<23>, f16, 1>)
INSTANCE(decode_gemm<Blocks<29>, f16, 0>)
INSTANCE(decode_gemm<Blocks<29>, f16, 1>)
INSTANCE(decode_gemm<Blocks<34>, f16, 0>)
INSTANCE(decode_gemm<Blocks<34>, f16, 1>)
INSTANCE(decode_gemm<Blocks<35>, f16, 0>)
INSTANCE(decode_gemm<Blocks<35>, f16, 1>)
INSTANCE(decode_gemm<Blocks<39>, bf16, 0>)
INSTANCE(decode_gemm<Blocks<39>, bf16, 1>)
INSTANCE(decode_gemm<Blocks<257>, f16, 0>)
INSTANCE(decode_gemm<Blocks<257>, f16, 1>)
