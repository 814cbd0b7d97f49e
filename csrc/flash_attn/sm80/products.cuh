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

// Columns [16 k, 16 k + 16) of 16 rows of Q.
template <class T, int kHeadDim>
FA_DEVICE void load_query_fragment(uint32_t (&to)[4], const T *rows, int k) {
  using Layout = SwizzledTile<kHeadDim>;
  const int lane = thread_index() % 32;
  load_matrices(to, rows + Layout::after(Layout::offset(lane % 16, lane / 16), 2 * k));
}

// scores += Q K^T over 8 * kColumnTiles keys, whose rows start at `keys`. Q is loaded for every
// product: registers are better used for longer tiles.
template <class T, int kHeadDim, int kRowTiles, int kColumnTiles>
FA_DEVICE void multiply_keys(Accumulators<kRowTiles, kColumnTiles> &scores, const T *queries,
                             const T *keys) {
  static_assert(kColumnTiles % 2 == 0);
  using Layout = SwizzledTile<kHeadDim>;
  const int lane = thread_index() % 32;
  const int own = Layout::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  // S and O of head_dim 128 leave too few registers to unroll more.
#pragma unroll(kHeadDim == 128 ? Layout::kSpan / 4 : kHeadDim / 16)
  for (int k = 0; k < kHeadDim / 16; k++) {
    uint32_t q[kRowTiles][4];
#pragma unroll
    for (int t = 0; t < kRowTiles; t++) {
      load_query_fragment<T, kHeadDim>(q[t], queries + 16 * t * kHeadDim, k);
    }
    // The next operand is loaded before the products of the one before it.
    uint32_t operands[2][4];
    const auto load = [&](int n) {
      load_matrices(operands[n / 2 % 2], keys + 8 * n * kHeadDim + Layout::after(own, 2 * k));
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

// out += weights V over 8 * kColumnTiles keys, whose rows start at `values`.
template <class T, int kHeadDim, int kRowTiles, int kColumnTiles>
FA_DEVICE void multiply_values(Accumulators<kRowTiles, kHeadDim / 8> &out,
                               const Weights<kRowTiles, kColumnTiles> &weights,
                               const T *values) {
  static_assert(kColumnTiles % 2 == 0);
  using Layout = SwizzledTile<kHeadDim>;
  const int own = Layout::offset(thread_index() % 16, thread_index() % 32 / 16);
#pragma unroll
  for (int k = 0; k < kColumnTiles / 2; k++) {
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n += 2) {
      uint32_t b[4];
      load_matrices_transposed(b, values + 16 * k * kHeadDim + Layout::after(own, n));
#pragma unroll
      for (int t = 0; t < kRowTiles; t++) {
        multiply_16x8x16<T>(out[t][n], weights[t][k], b[0], b[1]);
        multiply_16x8x16<T>(out[t][n + 1], weights[t][k], b[2], b[3]);
      }
    }
  }
}

}  // namespace flash_attn
