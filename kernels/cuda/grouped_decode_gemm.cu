// Products of decoded tokens with the chosen experts: out[pair] = x of the pair's token (or of the
// pair itself) times the expert's block of the weight, plus its bias.
//
//   x: for one pair a tile [.., cols] F32 when x_shared, else [.. * top_k, cols]; for several
//   [tokens of the set, padded_cols] of T when x_shared, else [tokens of the set * top_k,
//   padded_cols], with x_scale [rows of x], of convert_rows
//   weight: n_experts * expert_rows rows; bias [n_experts, expert_rows] or null
//   out [.. * top_k, expert_rows] F32: pairs as in moe.cuh
//   tiles, pairs: of moe_group, with as many pairs a tile as a block has tokens
//   grid: (expert_rows / 32, maximum number of tiles); block 256; dynamic shared as in
//   decode_gemm.cu
//   moves: the weights of the chosen experts, once per tile of an expert
//
// The method is that of decode_gemm.cuh.

#include "decode_gemm.cuh"
#include "moe.cuh"

template <class F, class T, u32 token_tiles>
__global__ void __launch_bounds__(kThreads, kResident<F, token_tiles>)
    grouped_decode_gemm(float* out, const void* x, const float* x_scale, u32 x_shared,
                        const u8* weight, u64 row_stride, u32 expert_rows, u32 cols,
                        u32 padded_cols, RowSet set, u32 top_k, const MoeTile* tiles,
                        const u32* n_tiles, const u32* pairs, const float* bias,
                        const u64* codebooks) {
  wait_for_previous_kernel();
  using Tile = DecodeTile<token_tiles>;
  DYNAMIC_SHARED(uint4, memory);
  if (blockIdx.y >= *n_tiles) return;
  const MoeTile tile = tiles[blockIdx.y];
  const u32 first_row = blockIdx.x * Tile::kRows;
  const u64 first_of_expert = u64(tile.expert) * expert_rows;
  const u32* own = pairs + tile.first;
  DecodeProduct<F, T, token_tiles> product(
      {weight + first_of_expert * row_stride, row_stride, cols, codebooks},
      [&](u32 i) { return min(first_row + i, expert_rows - 1); });
  product.request();

  const auto x_row = [&](u32 i) { return x_shared ? own[i] / top_k : own[i]; };
  TileSums<token_tiles> sums;
  if constexpr (Tile::kOne) {
    const u64 row = x_shared ? row_of_set(set, own[0] / top_k) : out_row_of_pair(set, own[0], top_k);
    sums = product.multiply_row(memory, static_cast<const float*>(x) + row * cols);
  } else {
    sums = product.multiply_rows(memory, tile.count, padded_cols, [&](u32 i) {
      return static_cast<const T*>(x) + u64(x_row(i)) * padded_cols;
    });
  }
  for (u32 i = threadIdx.x; i < Tile::kRows * tile.count; i += kThreads) {
    const u32 row = first_row + i % Tile::kRows, token = i / Tile::kRows;
    if (row >= expert_rows) continue;
    const float scale = Tile::kOne ? sums.divisor : x_scale[x_row(token)];
    const float product_of_row = sums.at(i % Tile::kRows, token) * scale;
    out[out_row_of_pair(set, own[token], top_k) * expert_rows + row] =
        bias ? product_of_row + bias[first_of_expert + row] : product_of_row;
  }
}

INSTANCE(grouped_decode_gemm<FormatF16, f16, 0>)
INSTANCE(grouped_decode_gemm<FormatF16, f16, 1>)
INSTANCE(grouped_decode_gemm<FormatBF16, bf16, 0>)
INSTANCE(grouped_decode_gemm<FormatBF16, bf16, 1>)
INSTANCE(grouped_decode_gemm<FormatQ8_0, f16, 0>)
INSTANCE(grouped_decode_gemm<FormatQ8_0, f16, 1>)
INSTANCE(grouped_decode_gemm<FormatFP8, f16, 0>)
INSTANCE(grouped_decode_gemm<FormatFP8, f16, 1>)
INSTANCE(grouped_decode_gemm<FormatQ4_0, f16, 0>)
INSTANCE(grouped_decode_gemm<FormatQ4_0, f16, 1>)
INSTANCE(grouped_decode_gemm<FormatQ4_K, f16, 0>)
INSTANCE(grouped_decode_gemm<FormatQ4_K, f16, 1>)
INSTANCE(grouped_decode_gemm<FormatQ6_K, f16, 0>)
INSTANCE(grouped_decode_gemm<FormatQ6_K, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<3>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<3>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<6>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<6>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<7>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<7>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<10>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<10>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<11>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<11>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<13>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<13>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<16>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<16>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<17>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<17>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<18>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<18>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<19>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<19>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<20>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<20>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<21>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<21>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<22>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<22>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<23>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<23>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<29>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<29>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<34>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<34>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<35>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<35>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<39>, bf16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<39>, bf16, 1>)
