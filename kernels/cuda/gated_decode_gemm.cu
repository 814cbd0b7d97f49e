// The gated unit of a decode step in one launch: out = unit(gate x, up x). The weight is the rows of
// `gate`, followed by the rows of `up`.
//
//   x, x_scale: as in decode_gemm.cu; weight: 2 * width rows in the format F, row_stride bytes apart
//   out [.., width] F32, for the tokens of a set
//   grid: (tokens / tile, width / 16, blocks that share the columns); block 256; dynamic shared as
//   in decode_gemm.cu
//   moves: the weight, once per tile of tokens; the intermediate of decode_gemm and glu, 16 bytes
//   per output, stays in shared memory
//
// Every sum is that of decode_gemm.cu: of the 16 rows of a tile, eight are rows of the gate and
// eight the matching rows of `up`.

#include "decode_gemm.cuh"

template <class F, class T, u32 token_tiles>
__global__ void __launch_bounds__(kThreads, kResident<F, token_tiles>)
    gated_decode_gemm(float* out, const void* x, const float* x_scale, const u8* weight,
                      u64 row_stride, u32 width, u32 cols, u32 padded_cols, RowSet set, u32 unit,
                      ColumnSplit split, const u64* codebooks) {
  using Tile = DecodeTile<token_tiles>;
  constexpr u32 kOutputs = Tile::kRows / 2;
  DYNAMIC_SHARED(uint4, memory);
  const u32 first_token = blockIdx.x * Tile::kTokens, first = blockIdx.y * kOutputs;
  DecodeProduct<F, T, token_tiles> product({weight, row_stride, cols, codebooks}, [&](u32 i) {
    const u32 row = min(first + i / 16 * 8 + i % 8, width - 1);
    return i / 8 % 2 == 0 ? row : width + row;
  });
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
  for (u32 i = threadIdx.x; i < kOutputs * n_tokens; i += kThreads) {
    const u32 own = i % kOutputs, token = i / kOutputs, gate = own / 8 * 16 + own % 8;
    if (first + own >= width) continue;
    const float scale = Tile::kOne ? sums.divisor : x_scale[first_token + token];
    out[u64(row_of_set(set, first_token + token)) * width + first + own] =
        gated_unit(unit, sums.at(gate, token) * scale, sums.at(gate + 8, token) * scale);
  }
}

INSTANCE(gated_decode_gemm<FormatF16, f16, 0>)
INSTANCE(gated_decode_gemm<FormatF16, f16, 1>)
INSTANCE(gated_decode_gemm<FormatBF16, bf16, 0>)
INSTANCE(gated_decode_gemm<FormatBF16, bf16, 1>)
INSTANCE(gated_decode_gemm<FormatQ8_0, f16, 0>)
INSTANCE(gated_decode_gemm<FormatQ8_0, f16, 1>)
INSTANCE(gated_decode_gemm<FormatFP8, f16, 0>)
INSTANCE(gated_decode_gemm<FormatFP8, f16, 1>)
INSTANCE(gated_decode_gemm<FormatQ4_0, f16, 0>)
INSTANCE(gated_decode_gemm<FormatQ4_0, f16, 1>)
INSTANCE(gated_decode_gemm<FormatQ4_K, f16, 0>)
INSTANCE(gated_decode_gemm<FormatQ4_K, f16, 1>)
INSTANCE(gated_decode_gemm<FormatQ6_K, f16, 0>)
INSTANCE(gated_decode_gemm<FormatQ6_K, f16, 1>)
