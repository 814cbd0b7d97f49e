// Writes accumulators to memory.
#pragma once

#include "core/softmax.cuh"

namespace flash_attn {

// Transposes a 4x4 matrix of words whose row i is held by lane i of four neighbouring lanes.
FA_DEVICE void transpose_quad(uint32_t (&word)[4]) {
  const int lane = thread_index() % 32;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = (lane & bit) != 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if ((i & bit) != 0) continue;
      const uint32_t received = shuffle_xor(upper ? word[i] : word[i | bit], bit);
      (upper ? word[i] : word[i | bit]) = received;
    }
  }
}

// Rounds rows of a warp to T and writes them. A quad of lanes holds 8 neighbouring columns of a
// row in each of four column tiles; after the transposition, each lane holds all 8 columns of one
// tile and writes them at once. `row_at(row)` points to a row of the output, null to skip the row.
template <class T, int kRowTiles, int kColumnTiles, class RowAt>
FA_DEVICE void store_rows(const Accumulators<kRowTiles, kColumnTiles> &values, RowAt row_at) {
  static_assert(kColumnTiles % 4 == 0);
  const int lane = thread_index() % 32;
#pragma unroll
  for (int t = 0; t < kRowTiles; t++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      T *const row = row_at(16 * t + 8 * h + lane / 4);
#pragma unroll
      for (int n = 0; n < kColumnTiles; n += 4) {
        Words4 words;
#pragma unroll
        for (int i = 0; i < 4; i++) {
          words.word[i] = pack<T>(values[t][n + i][2 * h], values[t][n + i][2 * h + 1]);
        }
        transpose_quad(words.word);
        if (row != nullptr) store_16_bytes(row + 8 * (n + lane % 4), words);
      }
    }
  }
}

// Writes each row's log-sum-exp once, from the first lane of its quad, as a natural logarithm.
template <int kRowTiles, class LseAt>
FA_DEVICE void store_lse(const PerRow<kRowTiles> &lse_log2, LseAt lse_at) {
  const int lane = thread_index() % 32;
  if (lane % 4 != 0) return;
#pragma unroll
  for (int t = 0; t < kRowTiles; t++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float *const to = lse_at(16 * t + 8 * h + lane / 4);
      if (to != nullptr) *to = lse_log2[t][h] * kLn2;
    }
  }
}

}  // namespace flash_attn
