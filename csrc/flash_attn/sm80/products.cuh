// The two products of attention with mma.sync, for the rows of one warp.
//
// ldmatrix loads four 8x8 matrices at a time. The rows passed by the lanes determine the operand:
//
//   left operand Q, 16 rows x 16 columns        right operand, 16 keys
//     lanes  0-15 pass rows 0-15, chunk 2k        K: rows are keys      (columns of K^T)
//     lanes 16-31 pass rows 0-15, chunk 2k + 1    V: rows are keys, so matrices are transposed
#pragma once

#include "core/softmax.cuh"
#include "sm80/tile.cuh"

namespace flash_attn {

/// Columns [16 k, 16 k + 16) of 16 rows of Q.
template <class T, int kHeadDim>
FA_DEVICE void load_query_fragment(uint32_t (&to)[4], const T *rows, int k) {
  const int lane = thread_index() % 32;
  load_matrices(to, rows + SwizzledTile<kHeadDim>::offset(lane % 16, 2 * k + lane / 16));
}

/// Q of one warp: kept in registers if there are enough, otherwise loaded for every product.
template <class T, int kHeadDim, int kRowTiles, bool kInRegisters>
class Queries {
 public:
  /// Must be called after the warp's rows, from `rows` on, have arrived.
  FA_DEVICE void load(const T *rows) {
    rows_ = rows;
    if constexpr (kInRegisters) {
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; k++) {
#pragma unroll
        for (int t = 0; t < kRowTiles; t++) {
          load_query_fragment<T, kHeadDim>(fragment_[k][t], rows + 16 * t * kHeadDim, k);
        }
      }
    }
  }

  FA_DEVICE void get(uint32_t (&to)[kRowTiles][4], int k) const {
#pragma unroll
    for (int t = 0; t < kRowTiles; t++) {
      if constexpr (kInRegisters) {
#pragma unroll
        for (int i = 0; i < 4; i++) to[t][i] = fragment_[k][t][i];
      } else {
        load_query_fragment<T, kHeadDim>(to[t], rows_ + 16 * t * kHeadDim, k);
      }
    }
  }

 private:
  const T *rows_ = nullptr;
  uint32_t fragment_[kInRegisters ? kHeadDim / 16 : 1][kRowTiles][4];
};

/// scores += Q K^T over 8 * kColumnTiles keys, whose rows start at `keys`.
template <class T, int kHeadDim, int kRowTiles, int kColumnTiles, bool kInRegisters>
FA_DEVICE void multiply_keys(Accumulators<kRowTiles, kColumnTiles> &scores,
                             const Queries<T, kHeadDim, kRowTiles, kInRegisters> &queries,
                             const T *keys) {
  static_assert(kColumnTiles % 2 == 0);
  const int lane = thread_index() % 32;
  // Fully unrolled, the compiler loads so far ahead that it runs out of registers.
#pragma unroll(kInRegisters ? kHeadDim / 16 : 2)
  for (int k = 0; k < kHeadDim / 16; k++) {
    uint32_t q[kRowTiles][4];
    queries.get(q, k);
    // The next operand is loaded before the products of the one before it.
    uint32_t operands[2][4];
    const auto load = [&](int n) {
      const int row = 8 * n + lane % 8 + lane / 16 * 8, chunk = 2 * k + lane / 8 % 2;
      load_matrices(operands[n / 2 % 2], keys + SwizzledTile<kHeadDim>::offset(row, chunk));
    };
    load(0);
#pragma unroll
    for (int n = 0; n < kColumnTiles; n += 2) {
      if (n + 2 < kColumnTiles) load(n + 2);
      const uint32_t(&b)[4] = operands[n / 2 % 2];
#pragma unroll
      for (int t = 0; t < kRowTiles; t++) {
        multiply_16x8x16<T>(scores[t][n], q[t], b[0], b[1]);
        multiply_16x8x16<T>(scores[t][n + 1], q[t], b[2], b[3]);
      }
    }
  }
}

/// out += weights V over 8 * kColumnTiles keys, whose rows start at `values`.
template <class T, int kHeadDim, int kRowTiles, int kColumnTiles>
FA_DEVICE void multiply_values(Accumulators<kRowTiles, kHeadDim / 8> &out,
                               const Weights<kRowTiles, kColumnTiles> &weights,
                               const T *values) {
  static_assert(kColumnTiles % 2 == 0);
  const int lane = thread_index() % 32;
#pragma unroll
  for (int k = 0; k < kColumnTiles / 2; k++) {
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n += 2) {
      uint32_t b[4];
      load_matrices_transposed(
          b, values + SwizzledTile<kHeadDim>::offset(16 * k + lane % 16, n + lane / 16));
#pragma unroll
      for (int t = 0; t < kRowTiles; t++) {
        multiply_16x8x16<T>(out[t][n], weights[t][k], b[0], b[1]);
        multiply_16x8x16<T>(out[t][n + 1], weights[t][k], b[2], b[3]);
      }
    }
  }
}

}  // namespace flash_attn
