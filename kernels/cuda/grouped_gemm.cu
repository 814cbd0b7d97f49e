// Products of prompts with the chosen experts, on tensor cores: out[pair] = x of the pair's token
// (or of the pair itself) times the expert's block of the weight, plus its bias.
//
//   x [tokens of the set, padded_cols] of T when x_shared, else [tokens of the set * top_k,
//   padded_cols]; x_scale [rows of x], of convert_rows
//   weight: n_experts * expert_rows rows; bias [n_experts, expert_rows] or null
//   out [.. * top_k, expert_rows] F32: pairs as in moe.cuh
//   tiles, pairs: of moe_group with 64 tokens a tile
//   grid: (expert_rows / 128, maximum number of tiles); block 256; dynamic shared:
//   gemm_shared_bytes, 55296
//   moves: the weights of the chosen experts, once per 64 pairs of an expert
//
// The method is that of gemm.cuh.

#include "gemm.cuh"
#include "moe.cuh"

template <class F, class T>
__global__ void __launch_bounds__(kThreads)
    grouped_gemm(float* out, const T* x, const float* x_scale, u32 x_shared, const u8* weight,
                 u64 row_stride, u32 expert_rows, u32 cols, u32 padded_cols, RowSet set, u32 top_k,
                 const MoeTile* tiles, const u32* n_tiles, const u32* pairs, const float* bias,
                 const u64* codebooks) {
  wait_for_previous_kernel();
  DYNAMIC_SHARED(T, memory);
  if (blockIdx.y >= *n_tiles) return;
  const MoeTile tile = tiles[blockIdx.y];
  const u64 first_row = u64(tile.expert) * expert_rows;
  const u32* own = pairs + tile.first;
  const auto x_row = [&](u32 i) { return x_shared ? own[i] / top_k : own[i]; };
  multiply_tile<F>(
      memory,
      GemmWeight{weight + first_row * row_stride, row_stride, expert_rows, cols, padded_cols,
                 codebooks},
      blockIdx.x * kRows, tile.count, [&](u32 i) { return x + u64(x_row(i)) * padded_cols; },
      [&](u32 row, u32 i, float sum) {
        const float product = sum * x_scale[x_row(i)];
        out[out_row_of_pair(set, own[i], top_k) * expert_rows + row] =
            bias ? product + bias[first_row + row] : product;
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
