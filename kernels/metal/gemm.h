#pragma once

// The product of many tokens with a weight: the body of gemm.metal and grouped_gemm.metal.
//
// A threadgroup computes 64 rows of weights by 64 tokens, four SIMD groups 32 by 32 each, in steps
// of 64 columns. Weights become F16 and are multiplied with x in F16 (round_rows.metal); weights in
// F32 and BF16 become F32, are multiplied with x in F32, and take steps of 32 columns. Sums are in
// F32.
//
//   - All threads copy the step's weights and x to threadgroup memory, so that each weight is
//     unpacked once for 64 tokens. A thread requests what it copies for the next step before the
//     SIMD groups multiply this one.
//   - Both tiles are stored as 8 x 8 blocks of 64 consecutive numbers: a matrix is one contiguous
//     load. For 16 products of matrices a SIMD group loads 8 matrices.
//   - The tiles take 16 KB, so that a core holds two threadgroups or more: one copies while another
//     multiplies.
//   - Of fewer tokens only 16, 32 or 48 are multiplied. The sums of a token are added in the order
//     of the columns, whatever the other tokens of the tile are.

#include "blocks.h"
#include "row_set.h"

CONSTANT uint kThreads = 128;

// Reading of a format by gemm: a chunk must lie within a step; Tile is the type that weights and x
// are multiplied in.
template <class F>
struct TileFormat {
  typedef F Format;
  typedef half Tile;
};
template <>
struct TileFormat<FormatF32> {
  typedef FormatF32 Format;
  typedef float Tile;
};
template <>
struct TileFormat<FormatBF16> {
  typedef FormatBF16 Format;
  typedef float Tile;
};
template <>
struct TileFormat<FormatQ6_K> {
  typedef Blocks<14> Format;
  typedef half Tile;
};

// Numbers between rows of x, and the factor of a row's products.
template <class F>
inline uint token_stride(uint cols) {
  return sizeof(typename TileFormat<F>::Tile) == 2 ? rounded_cols(cols) : cols;
}
template <class F>
inline float token_factor(device const float* factors, uint row) {
  return sizeof(typename TileFormat<F>::Tile) == 2 ? factors[row] : 1.0f;
}

// Columns of a step whose tiles have numbers of type T.
template <class T>
struct Step {
  CONSTANT uint kCols = 128 / sizeof(T);
};

// Threadgroup memory of a product, in fours of floats: both tiles, then the products.
CONSTANT uint kGemmFours = kGemmTokens * kGemmRows / 4;
static_assert(kGemmFours * 16 <= 16384, "a core holds two threadgroups");
static_assert((kGemmTokens + kGemmRows) * 128 <= kGemmFours * 16, "both tiles fit");
static_assert(kRoundedCols % Step<half>::kCols == 0, "padded rows are whole steps");

// Index of row `row`, column `col` of a step in a tile.
template <class T>
inline uint tile_at(uint row, uint col) {
  return (row / 8 * (Step<T>::kCols / 8) + col / 8) * 64 + row % 8 * 8 + col % 8;
}

inline void store_four(threadgroup half* to, float4 v) { *(threadgroup half4*)to = half4(v); }
inline void store_four(threadgroup float* to, float4 v) { *(threadgroup float4*)to = v; }

// The chunks of a step's weights that a thread copies. Rows beyond the last repeat the last and are
// not stored; columns beyond the last are zero.
template <class F, class T>
struct WeightCopy {
  CONSTANT uint kChunk = F::kRun * F::kRuns;
  CONSTANT uint kPerRow = Step<T>::kCols / kChunk;
  CONSTANT uint kChunks = kGemmRows * kPerRow / kThreads;

  device const u8* rows[kChunks];
  typename F::Chunk chunks[kChunks];
};
template <class F, class T>
inline uint copied_row(uint i, uint thread_index) {
  return (thread_index + i * kThreads) / WeightCopy<F, T>::kPerRow;
}
template <class F, class T>
inline uint copied_chunk(uint i, uint first_col, uint thread_index) {
  const uint per_row = WeightCopy<F, T>::kPerRow;
  return first_col / WeightCopy<F, T>::kChunk + (thread_index + i * kThreads) % per_row;
}

template <bool whole, class F, class T>
inline void request_chunks(thread WeightCopy<F, T>& copy, uint cols, uint first_col,
                           device const ulong* codebooks, uint thread_index) {
  UNROLL
  for (uint i = 0; i < WeightCopy<F, T>::kChunks; ++i) {
    const uint chunk = copied_chunk<F, T>(i, first_col, thread_index);
    if (chunk >= chunks_of<F>(cols)) continue;
    copy.chunks[i] = F::template load<whole>(copy.rows[i], cols, chunk, codebooks);
  }
}
template <class F, class T>
inline void request(thread WeightCopy<F, T>& copy, uint cols, uint first_col,
                    device const ulong* codebooks, uint thread_index) {
  const uint elements = WeightCopy<F, T>::kChunk;
  if (F::kUnit % elements == 0 || cols % elements == 0) {
    request_chunks<true>(copy, cols, first_col, codebooks, thread_index);
  } else {
    request_chunks<false>(copy, cols, first_col, codebooks, thread_index);
  }
}

template <class F, class T>
inline void store(threadgroup T* tile, thread const WeightCopy<F, T>& copy, uint cols,
                  uint first_col, uint thread_index) {
  UNROLL
  for (uint i = 0; i < WeightCopy<F, T>::kChunks; ++i) {
    const uint row = copied_row<F, T>(i, thread_index);
    const uint chunk = copied_chunk<F, T>(i, first_col, thread_index);
    const bool is_there = chunk < chunks_of<F>(cols);
    UNROLL
    for (uint r = 0; r < F::kRuns; ++r) {
      const uint start = F::run_start(chunk, r) - first_col;
      UNROLL
      for (uint j = 0; j < F::kRun / 4; ++j) {
        float4 four = 0.0f;
        if (is_there) {
          four = F::four(copy.chunks[i], r, j);
          if (F::kScaled) four = four * F::scale(copy.chunks[i], r) - F::min(copy.chunks[i], r);
        }
        store_four(tile + tile_at<T>(row, start + 4 * j), four);
      }
    }
  }
}

// The units of 16 bytes of a step's tokens that a thread copies, zeros beyond the last token.
template <class T>
struct TokenCopy {
  CONSTANT uint kUnits = Step<T>::kCols * sizeof(T) / 16;  // of a row
  CONSTANT uint kEach = kGemmTokens * kUnits / kThreads;

  device const T* rows[kEach];
  uint4 units[kEach];
};
template <class T>
inline uint copied_token(uint i, uint thread_index) {
  return (thread_index + i * kThreads) / TokenCopy<T>::kUnits;
}
template <class T>
inline uint copied_col(uint thread_index) {
  return thread_index % TokenCopy<T>::kUnits * (16 / sizeof(T));
}

// Rows in F16 are padded to whole steps.
inline uint4 load_unit(device const half* row, uint col, uint) {
  return *(device const uint4*)(row + col);
}
inline uint4 load_unit(device const float* row, uint col, uint cols) {
  return as_type<uint4>(load_four(row, col, cols));
}

template <class T>
inline void request(thread TokenCopy<T>& copy, uint count, uint cols, uint first_col,
                    uint thread_index) {
  const uint col = first_col + copied_col<T>(thread_index);
  UNROLL
  for (uint i = 0; i < TokenCopy<T>::kEach; ++i) {
    const bool is_there = copied_token<T>(i, thread_index) < count;
    copy.units[i] = is_there ? load_unit(copy.rows[i], col, cols) : uint4(0);
  }
}

template <class T>
inline void store(threadgroup T* tile, thread const TokenCopy<T>& copy, uint thread_index) {
  const uint col = copied_col<T>(thread_index);
  UNROLL
  for (uint i = 0; i < TokenCopy<T>::kEach; ++i) {
    const uint token = copied_token<T>(i, thread_index);
    *(threadgroup uint4*)(tile + tile_at<T>(token, col)) = copy.units[i];
  }
}

// sums += tokens x weights [32 rows] of one step, for `blocks` blocks of 8 tokens. A SIMD group has
// every other block of a tile, so that few tokens are divided evenly.
template <uint blocks, class T>
inline void multiply_step(thread simdgroup_float8x8 (&sums)[4][4], threadgroup const T* tokens,
                          threadgroup const T* weights) {
  const uint row_blocks = Step<T>::kCols / 8 * 64;  // distance between blocks of 8 rows in a tile
  UNROLL
  for (uint k = 0; k < Step<T>::kCols / 8; ++k) {
    simdgroup_matrix<T, 8, 8> x[blocks];
    simdgroup_matrix<T, 8, 8> w[4];
    UNROLL
    for (uint n = 0; n < blocks; ++n) simdgroup_load(x[n], tokens + 2 * n * row_blocks + k * 64, 8);
    UNROLL
    for (uint i = 0; i < 4; ++i) {
      simdgroup_load(w[i], weights + i * row_blocks + k * 64, 8, 0, true);
    }
    UNROLL
    for (uint n = 0; n < blocks; ++n) {
      UNROLL
      for (uint i = 0; i < 4; ++i) {
        simdgroup_multiply_accumulate(sums[n][i], x[n], w[i], sums[n][i]);
      }
    }
  }
}
template <class T>
inline void multiply_step(thread simdgroup_float8x8 (&sums)[4][4], uint blocks,
                          threadgroup const T* tokens, threadgroup const T* weights) {
  switch (blocks) {
    case 1:
      return multiply_step<1>(sums, tokens, weights);
    case 2:
      return multiply_step<2>(sums, tokens, weights);
    case 3:
      return multiply_step<3>(sums, tokens, weights);
    default:
      return multiply_step<4>(sums, tokens, weights);
  }
}

// Computes the products of `x`, which has a `count` and the `row` of each token, with rows
// first_row .. first_row + kGemmRows of a weight. Returns them in `memory` of kGemmFours as
// [kGemmTokens][kGemmRows], so that neighbouring threads can store neighbouring rows. All threads
// must call this.
template <class F, class Tokens>
inline threadgroup const float* multiply_tile(threadgroup float4* memory, WeightRows rows,
                                              uint first_row, thread const Tokens& x,
                                              device const ulong* codebooks, uint thread_index,
                                              uint simdgroup) {
  typedef typename TileFormat<F>::Tile T;
  const uint step = Step<T>::kCols;
  threadgroup T* weights = (threadgroup T*)memory;
  threadgroup T* tokens = weights + kGemmRows * Step<T>::kCols;
  const uint own_row = simdgroup % 2 * 32, own_token = simdgroup / 2 * 8;
  const uint blocks = (x.count + 15) / 16;

  simdgroup_float8x8 sums[4][4];
  UNROLL
  for (uint n = 0; n < 4; ++n) {
    UNROLL
    for (uint i = 0; i < 4; ++i) sums[n][i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  typedef typename TileFormat<F>::Format Format;
  WeightCopy<Format, T> weight_copy;
  UNROLL
  for (uint i = 0; i < WeightCopy<Format, T>::kChunks; ++i) {
    const uint row = first_row + copied_row<Format, T>(i, thread_index);
    weight_copy.rows[i] = rows.row(min(row, rows.count - 1));
  }
  TokenCopy<T> token_copy;
  UNROLL
  for (uint i = 0; i < TokenCopy<T>::kEach; ++i) {
    token_copy.rows[i] = x.row(min(copied_token<T>(i, thread_index), x.count - 1));
  }
  request(weight_copy, rows.cols, 0, codebooks, thread_index);
  request(token_copy, x.count, rows.cols, 0, thread_index);
  for (uint first = 0; first < rows.cols; first += step) {
    store(weights, weight_copy, rows.cols, first, thread_index);
    store(tokens, token_copy, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (first + step < rows.cols) {
      request(weight_copy, rows.cols, first + step, codebooks, thread_index);
      request(token_copy, x.count, rows.cols, first + step, thread_index);
    }
    multiply_step(sums, blocks, tokens + own_token * step, weights + own_row * step);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  threadgroup float* products = (threadgroup float*)memory;
  UNROLL
  for (uint n = 0; n < 4; ++n) {
    UNROLL
    for (uint i = 0; i < 4; ++i) {
      simdgroup_store(sums[n][i],
                      products + (own_token + 16 * n) * kGemmRows + own_row + 8 * i, kGemmRows);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return products;
}
