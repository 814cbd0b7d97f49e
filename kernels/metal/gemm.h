#pragma once

// The product of many tokens with a weight: the body of gemm.metal and grouped_gemm.metal.
//
// A threadgroup computes 64 rows of weights by 32 tokens, four SIMD groups 32 by 16 each, in steps
// of 64 columns. All threads dequantize the step's weights into threadgroup memory as F16 (F32 if
// the file has F32 or BF16) and copy the step's x as F32. The SIMD groups then multiply 8 x 8
// matrices of both and add in F32. Both tiles are stored as 8 x 8 blocks of 64 consecutive numbers,
// so that a matrix is one contiguous load. With 16 to 24 KB of threadgroup memory, a core holds one
// or two threadgroups; of two, one loads while the other multiplies. The sums of a token do not
// depend on the other tokens of the tile.

#include "blocks.h"

CONSTANT uint kStep = 64, kThreads = 128;

// Reading of a format by gemm: a chunk must lie within 64 columns; Tile is the type that weights
// are rounded to, Four a vector of four Tiles.
template <class F>
struct TileFormat {
  typedef F Format;
  typedef half Tile;
  typedef half4 Four;
};
template <>
struct TileFormat<FormatF32> {
  typedef FormatF32 Format;
  typedef float Tile;
  typedef float4 Four;
};
template <>
struct TileFormat<FormatBF16> {
  typedef FormatBF16 Format;
  typedef float Tile;
  typedef float4 Four;
};
template <>
struct TileFormat<FormatQ6_K> {
  typedef Blocks<14> Format;
  typedef half Tile;
  typedef half4 Four;
};

// Index of row `row`, column `col` of a step in a tile.
inline uint tile_at(uint row, uint col) {
  return (row / 8 * (kStep / 8) + col / 8) * 64 + row % 8 * 8 + col % 8;
}

inline void store_four(threadgroup half* to, float4 v) { *(threadgroup half4*)to = half4(v); }
inline void store_four(threadgroup float* to, float4 v) { *(threadgroup float4*)to = v; }

// The weights of one step. Rows beyond the last repeat the last and are not stored; columns beyond
// the last are zero.
template <class F, bool whole, class T>
inline void load_weights(threadgroup T* tile, WeightRows w, uint first_row, uint first_col,
                         device const ulong* codebooks, uint thread_index) {
  const uint elements = F::kRun * F::kRuns, per_row = kStep / elements;
  for (uint i = thread_index; i < kGemmRows * per_row; i += kThreads) {
    const uint row = i / per_row, chunk = first_col / elements + i % per_row;
    const bool is_there = chunk < chunks_of<F>(w.cols);
    typename F::Chunk c;
    if (is_there) {
      device const u8* from = w.row(min(first_row + row, w.count - 1));
      c = F::template load<whole>(from, w.cols, chunk, codebooks);
    }
    for (uint r = 0; r < F::kRuns; ++r) {
      const uint start = F::run_start(chunk, r) - first_col;
      for (uint j = 0; j < F::kRun / 4; ++j) {
        float4 four = 0.0f;
        if (is_there) {
          four = F::four(c, r, j);
          if (F::kScaled) four = four * F::scale(c, r) - F::min(c, r);
        }
        store_four(tile + tile_at(row, start + 4 * j), four);
      }
    }
  }
}

// The tokens of one step, zeros beyond the last. `Tokens` has their `count` and the `row` of each.
template <class Tokens>
inline void load_tokens(threadgroup float* tile, thread const Tokens& x, uint cols, uint first_col,
                        uint thread_index) {
  for (uint i = thread_index; i < kGemmTokens * (kStep / 4); i += kThreads) {
    const uint token = i / (kStep / 4), col = i % (kStep / 4) * 4, k = first_col + col;
    float4 v = 0.0f;
    if (token < x.count) {
      device const float* from = x.row(token);
      if (cols % 4 == 0) {
        if (k < cols) v = *(device const float4*)(from + k);
      } else {
        for (uint n = 0; n < 4; ++n) {
          if (k + n < cols) v[n] = from[k + n];
        }
      }
    }
    store_four(tile + tile_at(token, col), v);
  }
}

// sums[2][4] of a SIMD group += tokens [16] x weights [32 rows] of one step.
template <class T>
inline void multiply_step(thread simdgroup_float8x8 (&sums)[2][4], threadgroup const float* tokens,
                          threadgroup const T* weights) {
  const uint row_blocks = kStep / 8 * 64;  // distance between blocks of 8 rows in a tile
  for (uint k = 0; k < kStep / 8; ++k) {
    simdgroup_float8x8 x[2];
    simdgroup_matrix<T, 8, 8> w[4];
    UNROLL
    for (uint n = 0; n < 2; ++n) simdgroup_load(x[n], tokens + n * row_blocks + k * 64, 8);
    UNROLL
    for (uint i = 0; i < 4; ++i) {
      simdgroup_load(w[i], weights + i * row_blocks + k * 64, 8, 0, true);
    }
    UNROLL
    for (uint n = 0; n < 2; ++n) {
      UNROLL
      for (uint i = 0; i < 4; ++i) {
        simdgroup_multiply_accumulate(sums[n][i], x[n], w[i], sums[n][i]);
      }
    }
  }
}

// Computes the products of `x` with rows first_row .. first_row + kGemmRows of a weight. Leaves
// them in `tokens` as [kGemmTokens][kGemmRows], so that neighbouring threads can store neighbouring
// rows. `weights` has kGemmRows * kStep numbers, `tokens` kGemmTokens * kStep. All threads must
// call this.
template <class F, class Tokens>
inline void multiply_tile(threadgroup typename TileFormat<F>::Tile* weights,
                          threadgroup float* tokens, WeightRows rows, uint first_row,
                          thread const Tokens& x, device const ulong* codebooks,
                          uint thread_index, uint simdgroup) {
  typedef typename TileFormat<F>::Format Format;
  const uint own_row = simdgroup % 2 * 32, own_token = simdgroup / 2 * 16;
  const bool whole = Format::kUnit % (Format::kRun * Format::kRuns) == 0 ||
                     rows.cols % (Format::kRun * Format::kRuns) == 0;

  simdgroup_float8x8 sums[2][4];
  UNROLL
  for (uint n = 0; n < 2; ++n) {
    UNROLL
    for (uint i = 0; i < 4; ++i) sums[n][i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  for (uint first = 0; first < rows.cols; first += kStep) {
    if (whole) {
      load_weights<Format, true>(weights, rows, first_row, first, codebooks, thread_index);
    } else {
      load_weights<Format, false>(weights, rows, first_row, first, codebooks, thread_index);
    }
    load_tokens(tokens, x, rows.cols, first, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_step(sums, tokens + own_token * kStep, weights + own_row * kStep);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  UNROLL
  for (uint n = 0; n < 2; ++n) {
    UNROLL
    for (uint i = 0; i < 4; ++i) {
      simdgroup_store(sums[n][i], tokens + (own_token + 8 * n) * kGemmRows + own_row + 8 * i,
                      kGemmRows);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
