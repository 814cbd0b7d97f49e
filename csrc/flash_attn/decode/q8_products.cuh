// The products of decoding with keys and values of Q8_0, for 16 rows and 8 * kColumnTiles keys of
// one warp. ldmatrix loads bytes as 16-bit elements, pairs of neighbouring columns:
//
//   K   lane l has columns 4 (l % 4) to 4 (l % 4) + 3 of 16 of key l / 4. mma.sync sums over
//       columns in any order, so these are its columns 2 (l % 4), + 1, + 8 and + 9; Q is loaded
//       likewise.
//   V   transposed, lane l has columns 2 (l / 4) and + 1 of keys 2 (l % 4) and + 1. Even columns
//       are one operand and odd ones another, so that a lane sums four neighbouring columns.
//
// Products with K are exact; a sum over 32 columns takes the factor of its key. Values are
// multiplied by their factors, and rounded to F16.
#pragma once

#include "sm80/products.cuh"

namespace flash_attn {

template <int kHeadDim, int kColumnTiles>
class Q8Products {
 public:
  using Layout = SwizzledTile<kHeadDim / 2>;
  static constexpr int kScales = kHeadDim / 32;

  // Must be called after the warp's rows of Q have arrived.
  FA_DEVICE void load_queries(const f16 *rows) { queries_ = rows; }

  // scores += Q K^T.
  FA_DEVICE void multiply_keys(Accumulators<1, kColumnTiles> &scores, const q8_pair *keys,
                               const q8_pair *scales) const {
    const int lane = thread_index() % 32;
    Factors factors(scales);
#pragma unroll (kScales % 4 == 0 ? 4 : kScales)
    for (int b = 0; b < kScales; b++) {
      factors.advance(b);
      uint32_t query[2][4];
      load_query(query[0], 2 * b);
      load_query(query[1], 2 * b + 1);
#pragma unroll
      for (int n = 0; n < kColumnTiles; n += 2) {
        uint32_t stored[4];
        const int row = 8 * n + lane % 8 + lane / 16 * 8, chunk = 2 * b + lane / 8 % 2;
        load_matrices(stored, keys + Layout::offset(row, chunk));
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float sum[4] = {};
#pragma unroll
          for (int k = 0; k < 2; k++) {
            const uint32_t bytes = stored[2 * i + k] ^ kSigns;
            multiply_16x8x16<f16>(sum, query[k], bytes_to_halves<0, 1>(bytes),
                                  bytes_to_halves<2, 3>(bytes));
          }
          const uint32_t factor = factors.pair(n + i, b);
          float(&to)[4] = scores[0][n + i];
          const float low = half_to_float<0>(factor), high = half_to_float<1>(factor);
          to[0] = fmaf(sum[0], low, to[0]), to[1] = fmaf(sum[1], high, to[1]);
          to[2] = fmaf(sum[2], low, to[2]), to[3] = fmaf(sum[3], high, to[3]);
        }
      }
    }
  }

  // out += weights V.
  FA_DEVICE void multiply_values(Accumulators<1, kHeadDim / 8> &out,
                                 const Weights<1, kColumnTiles> &weights, const q8_pair *values,
                                 const q8_pair *scales) const {
    const int lane = thread_index() % 32;
    Factors factors(scales);
#pragma unroll
    for (int k = 0; k < kColumnTiles / 2; k++) {
#pragma unroll
      for (int b = 0; b < kScales; b++) {
        if (k == 0 || kScales > Factors::kBlocks) factors.advance(b);
        uint32_t stored[4];
        load_matrices_transposed(stored,
                                 values + Layout::offset(16 * k + lane % 16, 2 * b + lane / 16));
        const uint32_t factor[2] = {factors.pair(2 * k, b), factors.pair(2 * k + 1, b)};
#pragma unroll
        for (int c = 0; c < 2; c++) {
          const uint32_t bytes[2] = {stored[2 * c] ^ kSigns, stored[2 * c + 1] ^ kSigns};
          const int n = 2 * (2 * b + c);
          multiply_16x8x16<f16>(out[0][n], weights[0][k],
                                multiply_halves(bytes_to_halves<0, 2>(bytes[0]), factor[0]),
                                multiply_halves(bytes_to_halves<0, 2>(bytes[1]), factor[1]));
          multiply_16x8x16<f16>(out[0][n + 1], weights[0][k],
                                multiply_halves(bytes_to_halves<1, 3>(bytes[0]), factor[0]),
                                multiply_halves(bytes_to_halves<1, 3>(bytes[1]), factor[1]));
        }
      }
    }
  }

  // The column of element e of a row of out[0][n].
  FA_DEVICE static int column(int n, int e) {
    return 16 * (n / 2) + 4 * (thread_index() % 4) + 2 * e + n % 2;
  }

 private:
  // Makes signed bytes unsigned ones, greater by 128.
  static constexpr uint32_t kSigns = 0x80808080;

  // Columns [16 k, 16 k + 16) of Q.
  FA_DEVICE void load_query(uint32_t (&to)[4], int k) const {
    const int lane = thread_index() % 32, chunk = 2 * k + lane % 4 / 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int at = SwizzledTile<kHeadDim>::offset(lane / 4 + 8 * h, chunk);
      load_words(to[h], to[h + 2], queries_ + at + 4 * (lane % 2));
    }
  }

  // The factors of the keys 8 n + 2 (lane % 4) and + 1. Blocks of 32 columns are taken in order; at
  // most four of a key are in registers.
  class Factors {
   public:
    FA_DEVICE Factors(const q8_pair *scales)
        : first_(scales + 2 * (thread_index() % 4) * kScales) {}

    // Loads the factors of the next blocks if `block` is the first of them.
    FA_DEVICE void advance(int block) {
      if (block % kBlocks != 0) return;
#pragma unroll
      for (int n = 0; n < kColumnTiles; n++) {
        const q8_pair *const key = first_ + 8 * n * kScales + block;
#pragma unroll
        for (int i = 0; i < kWords; i++) {
          // Of an odd number, only every other key's are aligned to eight bytes.
          if constexpr (kScales % 2 != 0) {
            words_[n][i] = load_word(key + 2 * i);
          } else if constexpr (kBlocks % 4 != 0) {
            if (i % 2 == 0) load_words(words_[n][i], words_[n][i + 1], key + 2 * i);
          } else if (i % 2 == 0) {
            const int second = i / (kBlocks / 2);
            load_words(words_[n][i], words_[n][i + 1],
                       key + second * kScales + 2 * (i - second * (kBlocks / 2)));
          }
        }
      }
    }

    // Those of 32 columns.
    FA_DEVICE uint32_t pair(int n, int block) const {
      const int at = block % kBlocks;
      const uint32_t first = words_[n][at / 2], second = words_[n][(kBlocks + at) / 2];
      return (at % 2 == 0)
                 ? (kScales % 2 == 0 ? pair_halves<0, 0>(first, second)
                                     : pair_halves<0, 1>(first, second))
                 : (kScales % 2 == 0 ? pair_halves<1, 1>(first, second)
                                     : pair_halves<1, 0>(first, second));
    }

    // Blocks whose factors are in registers.
    static constexpr int kBlocks = kScales % 4 == 0 ? 4 : kScales;

   private:
    // Words of two keys.
    static constexpr int kWords = kBlocks;

    const q8_pair *first_;
    uint32_t words_[kColumnTiles][kWords];
  };

  const f16 *queries_ = nullptr;
};

}  // namespace flash_attn
