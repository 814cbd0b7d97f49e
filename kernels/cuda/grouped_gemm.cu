// Products of prompts with the chosen experts, on tensor cores: out[pair] = x of the pair's token
// (or of the pair itself) times the expert's block of the weight, plus its bias.
//
//   x converted to T, with top_k rows for each token unless x_shared
//   out [.. * top_k, rows] F32: pairs as in moe.cuh, 64 a tile
//   grid: (rows / 128, maximum number of tiles); block 256; dynamic shared: gemm_shared_bytes,
//   55296
//   moves: the weights of the chosen experts, once per 64 pairs of an expert
//
// The method is that of gemm.cuh.

#include "gemm.cuh"
#include "moe.cuh"

template <class F, class T>
__global__ void __launch_bounds__(kThreads)
    grouped_gemm(ProductOperands a, ExpertPairs e) {
  wait_for_previous_kernel();
  DYNAMIC_SHARED(T, memory);
  if (blockIdx.y >= *e.n_tiles) return;
  const MoeTile tile = e.tiles[blockIdx.y];
  const u32* own = e.pairs + tile.first;
  const T* x = static_cast<const T*>(a.x.data);
  multiply_tile<F>(
      memory, rows_of_expert(a.weight, tile.expert), a.x.padded_cols, blockIdx.x * kRows,
      tile.count,
      [&](u32 i) { return x + u64(converted_row_of_pair(e, own[i])) * a.x.padded_cols; },
      [&](u32 row, u32 i, float sum) {
        const float product = sum * a.x.scale[converted_row_of_pair(e, own[i])];
        store_of_pair(a, e, tile.expert, own[i], row, product);
      });
}

INSTANCE(grouped_gemm<FormatF16, f16>)
INSTANCE(grouped_gemm<FormatBF16, bf16>)
INSTANCE(grouped_gemm<FormatQ8_0, f16>)
INSTANCE(grouped_gemm<FormatFP8, f16>)
INSTANCE(grouped_gemm<FormatQ4_0, f16>)
INSTANCE(grouped_gemm<FormatQ4_K, f16>)
INSTANCE(grouped_gemm<FormatQ6_K, f16>)
INSTANCE(grouped_gemm<Blocks<3>, f16>)
INSTANCE(grouped_gemm<Blocks<6>, f16>)
INSTANCE(grouped_gemm<Blocks<7>, f16>)
INSTANCE(grouped_gemm<Blocks<10>, f16>)
INSTANCE(grouped_gemm<Blocks<11>, f16>)
INSTANCE(grouped_gemm<Blocks<13>, f16>)
INSTANCE(grouped_gemm<Blocks<16>, f16>)
INSTANCE(grouped_gemm<Blocks<17>, f16>)
INSTANCE(grouped_gemm<Blocks<18>, f16>)
INSTANCE(grouped_gemm<Blocks<19>, f16>)
INSTANCE(grouped_gemm<Blocks<20>, f16>)
INSTANCE(grouped_gemm<Blocks<21>, f16>)
INSTANCE(grouped_gemm<Blocks<22>, f16>)
INSTANCE(grouped_gemm<Blocks<23>, f16>)
INSTANCE(grouped_gemm<Blocks<29>, f16>)
INSTANCE(grouped_gemm<Blocks<34>, f16>)
INSTANCE(grouped_gemm<Blocks<35>, f16>)
INSTANCE(grouped_gemm<Blocks<39>, bf16>)
INSTANCE(grouped_gemm<Blocks<257>, f16>)
