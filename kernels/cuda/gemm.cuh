#pragma once

// The product of many tokens with a weight on tensor cores: the body of gemm.cu and
// grouped_gemm.cu.
//
// A block computes 128 rows of weights by 64 tokens, eight warps 32 by 32 each, in steps of 64
// columns. While the tensor cores compute one step, the weights of the next are loaded into
// registers and x into shared memory (cp.async). Weights are dequantized to 16 bits on the way to
// shared memory, so that only quantized bits are read from memory. Rows in shared memory are padded
// by 16 bytes, so that the eight rows of an ldmatrix begin in different banks.
//
// The sums of a token are added in column order and do not depend on the other tokens.

#include "blocks.cuh"
#include "ptx.cuh"
#include "warp.cuh"

constexpr u32 kRows = 128, kTokens = 64, kStep = 64, kThreads = 256;
constexpr u32 kStride = kStep + 8;
constexpr u32 kSumStride = kRows + 4;

// The chunks of weights that a thread loads for one step.
template <class F>
struct WeightLoader {
  static constexpr u32 kPerRow = kStep / F::kCols;
  static constexpr u32 kEach = kRows * kPerRow / kThreads;
  typename F::Chunk chunks[kEach];

  static DEVICE_MEMBER u32 row_of(u32 i) { return (threadIdx.x + i * kThreads) / kPerRow; }
  static DEVICE_MEMBER u32 chunk_of(u32 i) { return (threadIdx.x + i * kThreads) % kPerRow; }

  // Rows beyond the last repeat the last and are not stored; chunks beyond are zero.
  DEVICE_MEMBER void load(const WeightRows& w, u32 first_row, u32 step) {
#pragma unroll
    for (u32 i = 0; i < kEach; ++i) {
      const u8* row = w.data + min(first_row + row_of(i), w.rows - 1) * w.row_stride;
      const u32 chunk = step * kPerRow + chunk_of(i);
      if (chunk < chunks_of<F>(w.cols)) {
        chunks[i] = F::load(row, w.cols, chunk, w.codebooks);
      } else {
        chunks[i] = {};
      }
    }
  }

  template <class T>
  DEVICE_MEMBER void store(T* tile, u32 step) const {
#pragma unroll
    for (u32 i = 0; i < kEach; ++i) {
      T* row = tile + row_of(i) * kStride;
      const u32 chunk = step * kPerRow + chunk_of(i);
#pragma unroll
      for (u32 p = 0; p < F::kCols / 8; ++p) {
        uint4* to = reinterpret_cast<uint4*>(row + chunk * F::kCols + 8 * p - step * kStep);
        *to = F::template words<T>(chunks[i], p);
      }
    }
  }
};

// The columns of x that a thread loads for one step: 8 columns of two tokens, zeros beyond the last
// token.
template <class T>
struct TokenLoader {
  static constexpr u32 kUnits = kStep / 8;
  static constexpr u32 kEach = kTokens * kUnits / kThreads;
  const T* rows[kEach];
  bool valid[kEach];

  static DEVICE_MEMBER u32 token_of(u32 i) { return (threadIdx.x + i * kThreads) / kUnits; }

  // row_of(i) is the start of the row of x of token i; there are `count` tokens.
  template <class RowOf>
  DEVICE_MEMBER void begin(u32 count, RowOf row_of) {
#pragma unroll
    for (u32 i = 0; i < kEach; ++i) {
      valid[i] = token_of(i) < count;
      rows[i] = row_of(valid[i] ? token_of(i) : 0) + threadIdx.x % kUnits * 8;
    }
  }

  DEVICE_MEMBER void load(T* tile, u32 step) const {
#pragma unroll
    for (u32 i = 0; i < kEach; ++i) {
      copy_async_16(tile + token_of(i) * kStride + threadIdx.x % kUnits * 8,
                    rows[i] + step * kStep, valid[i]);
    }
    commit_copies();
  }
};

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

// Multiplies rows first_row .. first_row + 127 of the weight with `count` tokens, whose rows of x
// are row_of(0), row_of(1), ..., and calls store(row, token, sum) once for each valid pair. All
// threads of the block must call this; `memory` is its dynamic shared memory of gemm_shared_bytes,
// 55296; padded_cols is a multiple of 64.
template <class F, class T, class RowOf, class Store>
DEVICE void multiply_tile(T* memory, const WeightRows& w, u32 padded_cols, u32 first_row, u32 count,
                          RowOf row_of, Store store) {
  T* weight_tiles = memory;                       // [2][kRows][kStride]
  T* token_tiles = memory + 2 * kRows * kStride;  // [2][kTokens][kStride]
  const u32 warp_row = warp_id() % 4 * 32, warp_token = warp_id() / 4 * 32;

  float sums[2][4][4] = {};
  WeightLoader<F> weights;
  TokenLoader<T> tokens;
  weights.load(w, first_row, 0);
  tokens.begin(count, row_of);
  tokens.load(token_tiles, 0);
  const u32 n_steps = padded_cols / kStep;
  for (u32 step = 0; step < n_steps; ++step) {
    T* weight_tile = weight_tiles + step % 2 * kRows * kStride;
    T* token_tile = token_tiles + step % 2 * kTokens * kStride;
    weights.store(weight_tile, step);
    wait_copies<0>();
    __syncthreads();
    if (step + 1 < n_steps) {
      weights.load(w, first_row, step + 1);
      tokens.load(token_tiles + (step + 1) % 2 * kTokens * kStride, step + 1);
    }
    // Warps without tokens only load weights.
    if (warp_token < count) {
      multiply_step(sums, weight_tile + warp_row * kStride, token_tile + warp_token * kStride);
    }
  }

  // Pass sums through shared memory, so that neighbouring threads store neighbouring rows.
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
  if (row >= w.rows) return;
#pragma unroll 1
  for (u32 i = threadIdx.x / kRows; i < min(kTokens, count); i += kThreads / kRows) {
    store(row, i, all_sums[i * kSumStride + threadIdx.x % kRows]);
  }
}
