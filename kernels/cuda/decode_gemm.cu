// Products of a decode step with many sequences, on tensor cores, at memory speed: out = residual +
// alpha * activation(x weight^T + bias).
//
//   x [tokens, padded_cols] of T, eight numbers per element, and x_scale [tokens], of convert_rows
//   weight: `rows` rows in the format F, row_stride bytes apart
//   out [.., out_stride] F32: token i is row i of the set
//   grid: (tokens / (8 * token_tiles), rows / (16 * row_tiles)); block 256: eight warps share the
//   columns of the block's rows
//   moves: the weight, once per block of tokens; neighbouring blocks read the same rows
//
// With more than a few tokens, matvec.cu would spend more time multiplying than reading. Here
// weights are loaded from memory into registers in 16-byte chunks, as in matvec.cu, and are the
// left operand without rearrangement. A product may take the columns in any order: a lane's 16
// weights of a run serve four steps of 16 columns, four weights per step, if x is read in the same
// order, eight numbers at a time for two steps. No weight passes through shared memory.
//
// The sums of a token are added in the same order for any number of tiles, and so do not depend on
// the other tokens.

#include "activation.cuh"
#include "blocks.cuh"
#include "ptx.cuh"
#include "row_set.cuh"
#include "warp.cuh"

constexpr u32 kWarps = 8;

// Blocks per multiprocessor. Two tiles of rows with minima, and file blocks (blocks.cuh), take more
// than half of the registers.
template <class F, u32 row_tiles>
constexpr u32 kResident = (F::kHasMin && row_tiles > 1) || F::kRun == 32 ? 1 : 2;

// Fours j of a run from two rows of weights, as the left operand.
template <class F, class T>
DEVICE void operand(u32 (&a)[4], const typename F::Chunk (&c)[2], u32 r, u32 j) {
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    float4 v = F::four(c[i], r, j);
    if (F::kScaled) {
      const float scale = F::scale(c[i], r), least = F::min(c[i], r);
      v = make_float4(v.x * scale - least, v.y * scale - least, v.z * scale - least,
                      v.w * scale - least);
    }
    a[i] = pack_as(T{}, v.x, v.y);
    a[i + 2] = pack_as(T{}, v.z, v.w);
  }
}

// sums[16 rows, 8 tokens] of each tile += the products of one chunk per lane. tokens[n] is the
// start of the row of x of this lane's token.
template <class F, class T, u32 token_tiles, u32 row_tiles>
DEVICE void multiply_chunk(float (&sums)[row_tiles][token_tiles][4],
                           const typename F::Chunk (&c)[row_tiles][2], const uint4* x,
                           const u32 (&tokens)[token_tiles], u32 chunk) {
#pragma unroll
  for (u32 r = 0; r < F::kRuns; ++r) {
#pragma unroll
    for (u32 j = 0; j < F::kRun / 4; j += 2) {
      // Swizzling may have put the second four weights first.
      const u32 col = F::column(chunk, r, j);
      const bool swapped = (col & 4) != 0;
      uint4 eight[token_tiles];
#pragma unroll
      for (u32 n = 0; n < token_tiles; ++n) eight[n] = x[tokens[n] + col / 8];
#pragma unroll
      for (u32 k = 0; k < 2; ++k) {
        const bool later = swapped != (k == 1);
#pragma unroll
        for (u32 m = 0; m < row_tiles; ++m) {
          u32 a[4];
          operand<F, T>(a, c[m], r, j + k);
#pragma unroll
          for (u32 n = 0; n < token_tiles; ++n) {
            multiply_add(T{}, sums[m][n], a, later ? eight[n].z : eight[n].x,
                         later ? eight[n].w : eight[n].y);
          }
        }
      }
    }
  }
}

template <class F, class T, u32 token_tiles, u32 row_tiles>
__global__ void __launch_bounds__(kWarps * 32, kResident<F, row_tiles>)
    decode_gemm(float* out, const uint4* x, const float* x_scale, const u8* weight, u64 row_stride,
                u32 rows, u32 cols, u32 padded_cols, u32 out_stride, RowSet set, Epilogue e,
                const u64* codebooks) {
  wait_for_previous_kernel();
  constexpr u32 kTokens = 8 * token_tiles, kRows = 16 * row_tiles;
  SHARED(float, partial, [kWarps][kRows][kTokens + 1]);
  const u32 first_token = blockIdx.x * kTokens, first_row = blockIdx.y * kRows, count = *set.count;
  if (first_token >= count) return;
  const u32 g = lane_id() / 4, t = lane_id() % 4;

  // Indices of rows and tokens beyond the last repeat the last; their results are not stored.
  const u8* row[row_tiles][2];
#pragma unroll
  for (u32 m = 0; m < row_tiles; ++m) {
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      row[m][i] = weight + min(first_row + 16 * m + g + 8 * i, rows - 1) * row_stride;
    }
  }
  u32 tokens[token_tiles];
#pragma unroll
  for (u32 n = 0; n < token_tiles; ++n) {
    tokens[n] = min(first_token + 8 * n + g, count - 1) * (padded_cols / 8);
  }

  float sums[row_tiles][token_tiles][4] = {};
  // Four rows of chunks are in flight: two chunks ahead for one tile, one for two tiles.
  constexpr u32 kAhead = row_tiles == 1 ? 2 : 1;
  const u32 n_chunks = chunks_of<F>(cols);
  for (u32 first = warp_id() * 4; first < n_chunks; first += kAhead * kWarps * 4) {
    typename F::Chunk c[kAhead][row_tiles][2];
    u32 chunks[kAhead];
#pragma unroll
    for (u32 k = 0; k < kAhead; ++k) {
      const u32 chunk = first + k * kWarps * 4 + t;
      chunks[k] = min(chunk, n_chunks - 1);
#pragma unroll
      for (u32 m = 0; m < row_tiles; ++m) {
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
          if (chunk < n_chunks) {
            c[k][m][i] = F::load(row[m][i], cols, chunk, codebooks);
          } else {
            c[k][m][i] = {};
          }
        }
      }
    }
#pragma unroll
    for (u32 k = 0; k < kAhead; ++k) {
      multiply_chunk<F, T, token_tiles, row_tiles>(sums, c[k], x, tokens, chunks[k]);
    }
  }

#pragma unroll
  for (u32 m = 0; m < row_tiles; ++m) {
#pragma unroll
    for (u32 n = 0; n < token_tiles; ++n) {
#pragma unroll
      for (u32 i = 0; i < 4; ++i) {
        partial[warp_id()][16 * m + g + i / 2 * 8][8 * n + 2 * t + i % 2] = sums[m][n][i];
      }
    }
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < kRows * kTokens; i += blockDim.x) {
    const u32 own_row = i % kRows, own_token = i / kRows;
    if (first_row + own_row >= rows || first_token + own_token >= count) continue;
    float sum = 0;
    for (u32 w = 0; w < kWarps; ++w) sum += partial[w][own_row][own_token];
    store_product(out, e, sum * x_scale[first_token + own_token],
                  row_of_set(set, first_token + own_token), out_stride, first_row + own_row);
  }
}

INSTANCE(decode_gemm<FormatF16, f16, 1, 1>)
INSTANCE(decode_gemm<FormatF16, f16, 4, 2>)
INSTANCE(decode_gemm<FormatBF16, bf16, 1, 1>)
INSTANCE(decode_gemm<FormatBF16, bf16, 4, 2>)
INSTANCE(decode_gemm<FormatQ8_0, f16, 1, 1>)
INSTANCE(decode_gemm<FormatQ8_0, f16, 4, 2>)
INSTANCE(decode_gemm<FormatFP8, f16, 1, 1>)
INSTANCE(decode_gemm<FormatFP8, f16, 4, 2>)
INSTANCE(decode_gemm<FormatQ4_0, f16, 1, 1>)
INSTANCE(decode_gemm<FormatQ4_0, f16, 4, 2>)
INSTANCE(decode_gemm<FormatQ4_K, f16, 1, 1>)
INSTANCE(decode_gemm<FormatQ4_K, f16, 4, 2>)
INSTANCE(decode_gemm<FormatQ6_K, f16, 1, 1>)
INSTANCE(decode_gemm<FormatQ6_K, f16, 4, 2>)
INSTANCE(decode_gemm<Blocks<3>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<6>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<7>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<10>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<11>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<13>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<16>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<17>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<18>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<19>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<20>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<21>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<22>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<23>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<29>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<34>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<35>, f16, 1, 1>)
INSTANCE(decode_gemm<Blocks<39>, f16, 1, 1>)
