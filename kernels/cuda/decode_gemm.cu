// Products of a decode step: out = residual + alpha * activation(x weight^T + bias).
//
//   x: for one token [.., cols] F32, read at a set of rows; for several [tokens of the set,
//   padded_cols] of T, with x_scale [tokens of the set], of convert_rows
//   weight: `rows` rows in the format F, row_stride bytes apart
//   out [.., out_stride] F32: token i is row i of the set
//   grid: (tokens / tile, rows / 32, or 64 from 4 tiles on, blocks that share the columns); block
//   256; dynamic shared: ProductTile of csrc/cuda/plan_builder.h
//   moves: the weight, once per tile of tokens; neighbouring blocks read the same rows
//
// The method is that of decode_gemm.cuh.

#include "decode_gemm.cuh"

template <class F, class T, u32 token_tiles>
__global__ void __launch_bounds__(kThreads, kResident<F, token_tiles>)
    decode_gemm(float* out, const void* x, const float* x_scale, const u8* weight, u64 row_stride,
                u32 rows, u32 cols, u32 padded_cols, u32 out_stride, RowSet set, Epilogue e,
                ColumnSplit split, const u64* codebooks) {
  using Tile = DecodeTile<token_tiles>;
  DYNAMIC_SHARED(uint4, memory);
  const u32 first_token = blockIdx.x * Tile::kTokens, first_row = blockIdx.y * Tile::kRows;
  // Rows beyond the last repeat the last; their results are not stored.
  DecodeProduct<F, T, token_tiles> product(
      {weight, row_stride, cols, codebooks},
      [&](u32 i) { return min(first_row + i, rows - 1); });
  if constexpr (!kDecodedByLoad<F>) product.request();
  wait_for_previous_kernel();
  const u32 count = *set.count;
  if (first_token >= count) return;
  if constexpr (kDecodedByLoad<F>) product.request();

  const u32 n_tokens = min(count - first_token, Tile::kTokens);
  TileSums<token_tiles> sums;
  if constexpr (Tile::kOne) {
    const float* row = static_cast<const float*>(x) + u64(row_of_set(set, first_token)) * cols;
    sums = product.multiply_row(memory, row);
  } else {
    sums = product.multiply_rows(memory, n_tokens, padded_cols, [&](u32 i) {
      return static_cast<const T*>(x) + u64(first_token + i) * padded_cols;
    });
  }
  if (!sums.complete(split, n_tokens)) return;
  for (u32 i = threadIdx.x; i < Tile::kRows * n_tokens; i += kThreads) {
    const u32 row = i % Tile::kRows, token = i / Tile::kRows;
    if (first_row + row >= rows) continue;
    const float scale = Tile::kOne ? sums.divisor : x_scale[first_token + token];
    store_product(out, e, sums.at(row, token) * scale, row_of_set(set, first_token + token),
                  out_stride, first_row + row);
  }
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
