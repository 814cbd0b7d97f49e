// Products of up to 16 tokens on tensor cores, at memory speed: out = residual + alpha *
// activation(x weight^T + bias).
//
//   x [tokens, padded_cols] of T, x_scale [tokens]: of convert_rows
//   weight: `rows` rows in the format F, row_stride bytes apart; out [tokens, out_stride] F32
//   grid: (rows / 16, tokens / 16); block 256: eight warps share the columns of 16 rows
//   moves: the weight, once for every 16 tokens
//
// With more than a few tokens, matvec.cu would spend longer on multiplying than on reading. Here
// weights go from memory into registers in 16-byte chunks, as there, and are the left operand as
// they lie: a product does not mind in which order it takes the columns, so that a lane's 16
// consecutive weights serve four steps of 16 columns, four of each lane, if x is read in the same
// order. No weight passes through shared memory.

#include "activation.cuh"
#include "blocks.cuh"
#include "ptx.cuh"
#include "warp.cuh"

constexpr u32 kRows = 16, kTokens = 16, kWarps = 8;

// Two rows' weights 4 j .. 4 j + 3 of a run, as the left operand.
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

// sums[16 rows, 16 tokens] of a warp += the products of one chunk of each lane.
template <class F, class T>
DEVICE void multiply_chunk(float (&sums)[2][4], const typename F::Chunk (&c)[2],
                           const T* const (&x)[2], u32 chunk) {
#pragma unroll
  for (u32 r = 0; r < F::kRuns; ++r) {
    const u32 start = F::run_start(chunk, r);
#pragma unroll
    for (u32 j = 0; j < F::kRun / 4; ++j) {
      u32 a[4];
      operand<F, T>(a, c, r, j);
#pragma unroll
      for (u32 n = 0; n < 2; ++n) {
        const uint2 b = *reinterpret_cast<const uint2*>(x[n] + start + 4 * j);
        multiply_add(T{}, sums[n], a, b.x, b.y);
      }
    }
  }
}

template <class F, class T>
__global__ void __launch_bounds__(kWarps * 32)
    decode_gemm(float* out, const T* x, const float* x_scale, const u8* weight, u64 row_stride,
                u32 rows, u32 cols, u32 padded_cols, u32 out_stride, const u32* n_rows, Epilogue e,
                const u64* codebooks) {
  SHARED(float, partial, [kWarps][kRows][kTokens + 1]);
  const u32 first_row = blockIdx.x * kRows, first_token = blockIdx.y * kTokens, count = *n_rows;
  if (first_token >= count) return;
  const u32 g = lane_id() / 4, t = lane_id() % 4;

  // Rows and tokens beyond the last are the last once more, and not stored.
  const u8* row[2];
  const T* token[2];
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
    row[i] = weight + min(first_row + g + 8 * i, rows - 1) * row_stride;
    token[i] = x + u64(min(first_token + g + 8 * i, count - 1)) * padded_cols;
  }
  float sums[2][4] = {};
  const u32 n_chunks = chunks_of<F>(cols);
  for (u32 first = warp_id() * 4; first < n_chunks; first += 2 * kWarps * 4) {
    typename F::Chunk c[2][2];
    u32 chunks[2];
#pragma unroll
    for (u32 k = 0; k < 2; ++k) {
      const u32 chunk = first + k * kWarps * 4 + t;
      chunks[k] = min(chunk, n_chunks - 1);
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        if (chunk < n_chunks) {
          c[k][i] = F::load(row[i], cols, chunk, codebooks);
        } else {
          c[k][i] = {};
        }
      }
    }
#pragma unroll
    for (u32 k = 0; k < 2; ++k) multiply_chunk<F>(sums, c[k], token, chunks[k]);
  }

#pragma unroll
  for (u32 n = 0; n < 2; ++n) {
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      partial[warp_id()][g + i / 2 * 8][n * 8 + 2 * t + i % 2] = sums[n][i];
    }
  }
  __syncthreads();
  const u32 own_row = threadIdx.x % kRows, own_token = threadIdx.x / kRows;
  if (first_row + own_row >= rows || first_token + own_token >= count) return;
  float sum = 0;
  for (u32 w = 0; w < kWarps; ++w) sum += partial[w][own_row][own_token];
  store_product(out, e, sum * x_scale[first_token + own_token], first_token + own_token, out_stride,
                first_row + own_row);
}

INSTANCE(decode_gemm<FormatF16, f16>)
INSTANCE(decode_gemm<FormatBF16, bf16>)
INSTANCE(decode_gemm<FormatQ8_0, f16>)
INSTANCE(decode_gemm<FormatQ4_0, f16>)
INSTANCE(decode_gemm<FormatQ4_K, f16>)
INSTANCE(decode_gemm<FormatQ6_K, f16>)
INSTANCE(decode_gemm<Blocks<3>, f16>)
INSTANCE(decode_gemm<Blocks<6>, f16>)
INSTANCE(decode_gemm<Blocks<7>, f16>)
INSTANCE(decode_gemm<Blocks<10>, f16>)
INSTANCE(decode_gemm<Blocks<11>, f16>)
INSTANCE(decode_gemm<Blocks<13>, f16>)
INSTANCE(decode_gemm<Blocks<16>, f16>)
INSTANCE(decode_gemm<Blocks<17>, f16>)
INSTANCE(decode_gemm<Blocks<18>, f16>)
INSTANCE(decode_gemm<Blocks<19>, f16>)
INSTANCE(decode_gemm<Blocks<20>, f16>)
INSTANCE(decode_gemm<Blocks<21>, f16>)
INSTANCE(decode_gemm<Blocks<22>, f16>)
INSTANCE(decode_gemm<Blocks<23>, f16>)
INSTANCE(decode_gemm<Blocks<29>, f16>)
INSTANCE(decode_gemm<Blocks<34>, f16>)
INSTANCE(decode_gemm<Blocks<35>, f16>)
INSTANCE(decode_gemm<Blocks<39>, f16>)
