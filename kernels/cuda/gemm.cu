// Products of many tokens on tensor cores, where no library is there to do them, and for formats
// that a library cannot read: out = residual + alpha * activation(x weight^T + bias).
//
//   x [tokens, padded_cols] of T, x_scale [tokens]: of convert_rows; padded_cols a multiple of 64
//   weight: `rows` rows in the format F, row_stride bytes apart
//   out [.., out_stride] F32: token i is row i of the set
//   grid: (rows / 128, tokens / 64); block 256; dynamic shared: gemm_shared_bytes, 55296
//
// A block computes 128 rows of weights by 64 tokens, eight warps 32 by 32 each, in steps of 64
// columns. While the tensor cores work on one step, the weights of the next are on their way into
// registers and x into shared memory (cp.async); the weights are dequantised to 16 bits as they are
// put into shared memory, so that they cross the bus in the file's own few bits. Rows there are 16
// bytes longer than 64 numbers: the eight rows of an ldmatrix then begin in different banks.

#include "activation.cuh"
#include "blocks.cuh"
#include "ptx.cuh"
#include "row_set.cuh"
#include "warp.cuh"

constexpr u32 kRows = 128, kTokens = 64, kStep = 64, kThreads = 256;
constexpr u32 kStride = kStep + 8;

// The chunks of one step that a thread brings in.
template <class F>
struct Loader {
  static constexpr u32 kPerRow = kStep / (F::kRun * F::kRuns);
  static constexpr u32 kEach = kRows * kPerRow / kThreads;
  typename F::Chunk chunks[kEach];

  static DEVICE_MEMBER u32 row_of(u32 i) { return (threadIdx.x + i * kThreads) / kPerRow; }
  static DEVICE_MEMBER u32 chunk_of(u32 i) { return (threadIdx.x + i * kThreads) % kPerRow; }

  // Rows beyond the last are the last once more, and not stored; chunks beyond are zero.
  DEVICE_MEMBER void load(const u8* weight, u64 row_stride, u32 first_row, u32 rows, u32 cols,
                          u32 step, const u64* codebooks) {
#pragma unroll
    for (u32 i = 0; i < kEach; ++i) {
      const u8* row = weight + min(first_row + row_of(i), rows - 1) * row_stride;
      const u32 chunk = step * kPerRow + chunk_of(i);
      if (chunk < chunks_of<F>(cols)) {
        chunks[i] = F::load(row, cols, chunk, codebooks);
      } else {
        chunks[i] = {};
      }
    }
  }

  template <class T>
  DEVICE_MEMBER void store(T* tile) const {
#pragma unroll
    for (u32 i = 0; i < kEach; ++i) {
      T* row = tile + row_of(i) * kStride;
#pragma unroll
      for (u32 r = 0; r < F::kRuns; ++r) {
        const float scale = F::scale(chunks[i], r), least = F::min(chunks[i], r);
        T* to = row + F::run_start(chunk_of(i), r);
#pragma unroll
        for (u32 j = 0; j < F::kRun / 4; ++j) {
          const float4 v = F::four(chunks[i], r, j);
          *reinterpret_cast<uint2*>(to + 4 * j) =
              F::kScaled ? make_uint2(pack_as(T{}, v.x * scale - least, v.y * scale - least),
                                      pack_as(T{}, v.z * scale - least, v.w * scale - least))
                         : make_uint2(pack_as(T{}, v.x, v.y), pack_as(T{}, v.z, v.w));
        }
      }
    }
  }
};

// The rows of x of one step; tokens beyond the last become zeros.
template <class T>
DEVICE void load_tokens(T* tile, const T* x, u32 padded_cols, u32 first, u32 count, u32 step) {
  constexpr u32 kUnits = kStep / 8;
  for (u32 i = threadIdx.x; i < kTokens * kUnits; i += kThreads) {
    const u32 token = first + i / kUnits, unit = i % kUnits;
    const bool valid = token < count;
    const T* from = x + u64(valid ? token : 0) * padded_cols + step * kStep + unit * 8;
    copy_async_16(tile + i / kUnits * kStride + unit * 8, from, valid);
  }
  commit_copies();
}

// sums[32 rows, 32 tokens] of a warp += one step's products.
template <class T>
DEVICE void multiply_step(float (&sums)[2][4][4], const T* weights, const T* tokens) {
  const u32 lane = lane_id();
#pragma unroll
  for (u32 k = 0; k < kStep; k += 16) {
    u32 a[2][4];
#pragma unroll
    for (u32 m = 0; m < 2; ++m) {
      load_matrices(a[m], weights + (m * 16 + lane % 16) * kStride + k + lane / 16 * 8);
    }
#pragma unroll
    for (u32 n = 0; n < 2; ++n) {
      u32 b[4];
      const u32 token = n * 16 + lane / 16 * 8 + lane % 8;
      load_matrices(b, tokens + token * kStride + k + lane / 8 % 2 * 8);
#pragma unroll
      for (u32 m = 0; m < 2; ++m) {
        multiply_add(T{}, sums[m][2 * n], a[m], b[0], b[1]);
        multiply_add(T{}, sums[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

template <class F, class T>
__global__ void __launch_bounds__(kThreads)
    gemm(float* out, const T* x, const float* x_scale, const u8* weight, u64 row_stride, u32 rows,
         u32 cols, u32 padded_cols, u32 out_stride, RowSet set, Epilogue e,
         const u64* codebooks) {
  wait_for_previous_kernel();
  DYNAMIC_SHARED(T, memory);
  T* weight_tiles = memory;                             // [2][kRows][kStride]
  T* token_tiles = memory + 2 * kRows * kStride;        // [2][kTokens][kStride]
  const u32 first_row = blockIdx.x * kRows, first_token = blockIdx.y * kTokens, count = *set.count;
  if (first_token >= count) return;
  const u32 warp_row = warp_id() % 4 * 32, warp_token = warp_id() / 4 * 32;

  float sums[2][4][4] = {};
  Loader<F> loader;
  loader.load(weight, row_stride, first_row, rows, cols, 0, codebooks);
  load_tokens(token_tiles, x, padded_cols, first_token, count, 0);
  const u32 n_steps = padded_cols / kStep;
  for (u32 step = 0; step < n_steps; ++step) {
    T* weights = weight_tiles + step % 2 * kRows * kStride;
    T* tokens = token_tiles + step % 2 * kTokens * kStride;
    loader.store(weights);
    wait_copies<0>();
    __syncthreads();
    if (step + 1 < n_steps) {
      loader.load(weight, row_stride, first_row, rows, cols, step + 1, codebooks);
      load_tokens(token_tiles + (step + 1) % 2 * kTokens * kStride, x, padded_cols, first_token,
                  count, step + 1);
    }
    multiply_step(sums, weights + warp_row * kStride, tokens + warp_token * kStride);
  }

  // Through shared memory, so that neighbouring threads store neighbouring rows.
  constexpr u32 kSumStride = kRows + 4;
  float* all_sums = reinterpret_cast<float*>(memory);
  __syncthreads();
  const u32 g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
  for (u32 n = 0; n < 4; ++n) {
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      float* to = all_sums + (warp_token + n * 8 + 2 * t + i % 2) * kSumStride + warp_row;
      to[g + i / 2 * 8] = sums[0][n][i];
      to[16 + g + i / 2 * 8] = sums[1][n][i];
    }
  }
  __syncthreads();
  const u32 row = first_row + threadIdx.x % kRows;
  if (row >= rows) return;
#pragma unroll 1
  for (u32 i = threadIdx.x / kRows; i < min(kTokens, count - first_token); i += kThreads / kRows) {
    const float sum = all_sums[i * kSumStride + threadIdx.x % kRows] * x_scale[first_token + i];
    store_product(out, e, sum, row_of_set(set, first_token + i), out_stride, row);
  }
}

INSTANCE(gemm<FormatF16, f16>)
INSTANCE(gemm<FormatBF16, bf16>)
INSTANCE(gemm<FormatQ8_0, f16>)
INSTANCE(gemm<FormatQ4_0, f16>)
INSTANCE(gemm<FormatQ4_K, f16>)
INSTANCE(gemm<FormatQ6_K, f16>)
INSTANCE(gemm<Blocks<3>, f16>)
INSTANCE(gemm<Blocks<6>, f16>)
INSTANCE(gemm<Blocks<7>, f16>)
INSTANCE(gemm<Blocks<10>, f16>)
INSTANCE(gemm<Blocks<11>, f16>)
INSTANCE(gemm<Blocks<13>, f16>)
INSTANCE(gemm<Blocks<16>, f16>)
INSTANCE(gemm<Blocks<17>, f16>)
INSTANCE(gemm<Blocks<18>, f16>)
INSTANCE(gemm<Blocks<19>, f16>)
INSTANCE(gemm<Blocks<20>, f16>)
INSTANCE(gemm<Blocks<21>, f16>)
INSTANCE(gemm<Blocks<22>, f16>)
INSTANCE(gemm<Blocks<23>, f16>)
INSTANCE(gemm<Blocks<29>, f16>)
INSTANCE(gemm<Blocks<34>, f16>)
INSTANCE(gemm<Blocks<35>, f16>)
INSTANCE(gemm<Blocks<39>, f16>)
