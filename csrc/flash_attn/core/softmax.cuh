// Online softmax (Milakov and Gimelshein, 2018; FlashAttention-2, section 3.1). Scores arrive one
// tile of keys at a time. When the base of a row's exponentials rises, previous sums are multiplied
// by 2^(old base - new base).
#pragma once

#include "core/accumulators.cuh"
#include "core/constants.h"
#include "core/key_window.cuh"

namespace flash_attn {

// One number for each row of a thread: rows l / 4 and l / 4 + 8 of row tile t.
template <int kRowTiles>
using PerRow = float[kRowTiles][2];

// Sets the scores of keys that a query does not see to -infinity. `query_of(row)` is the query of
// one of the warp's rows; the columns of scores are keys from first_key on.
template <int kRowTiles, int kColumnTiles, class QueryOf>
FA_DEVICE void mask_scores(Accumulators<kRowTiles, kColumnTiles> &scores, const KeyWindow &window,
                           QueryOf query_of, int first_key) {
  // Keeps the compiler from holding the bounds of all rows in registers; few tiles need them.
  const int lane = forget(thread_index() % 32);
#pragma unroll
  for (int t = 0; t < kRowTiles; t++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int query = query_of(16 * t + 8 * h + lane / 4);
      const int key = first_key + 2 * (lane % 4);
      const int first = window.first(query) - key, end = window.end(query) - key;
#pragma unroll
      for (int n = 0; n < kColumnTiles; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int column = 8 * n + e;
          if (column < first || column >= end) scores[t][n][2 * h + e] = kMinusInfinity;
        }
      }
    }
  }
}

// score -> softcap * tanh(score * scale / softcap), times log2(e). tanh(x) = 1 - 2 / (1 + e^2x)
// has an absolute error of 2^-23, small against the cap; the hardware's tanh.approx has an error
// of 2^-11.
template <int kRowTiles, int kColumnTiles>
FA_DEVICE void cap_scores(Accumulators<kRowTiles, kColumnTiles> &scores, const ScoreArgs &args) {
#pragma unroll
  for (int t = 0; t < kRowTiles; t++) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; n++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float exponential = exp2_fast(scores[t][n][e] * args.softcap_scale);
        scores[t][n][e] =
            fmaf(args.softcap_fall, reciprocal_fast(1.0f + exponential), args.softcap_log2);
      }
    }
  }
}

// The running base and sum of each row of a warp. The base is a maximum of the row so far. It
// rises only if weights would exceed 2^kMostWeight: until then neither sums nor outputs have to be
// scaled, and weights of 16 bits have the same relative precision. Rows do not depend on each
// other, because a row whose base does not rise is scaled by 1.
//
// kRaised is the log2 of a weight at its row's maximum when the base rises: E4M3 has no weights
// below 2^-10 and is less precise below 2^-6.
template <int kRowTiles, int kRaised = 0>
class OnlineSoftmax {
 public:
  // Capped scores are already in base 2.
  FA_DEVICE OnlineSoftmax(const ScoreArgs &args, bool is_capped)
      : scale_(is_capped ? 1.0f : args.scale_log2) {
#pragma unroll
    for (int t = 0; t < kRowTiles; t++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        base_[t][h] = kNoBase;
        sum_[t][h] = 0;
      }
    }
  }

  // Raises the bases of rows for a tile of scores. Returns true for the whole warp if some have
  // risen; `shrink` is then the factor for earlier weights.
  template <int kColumnTiles>
  FA_DEVICE bool raise(const Accumulators<kRowTiles, kColumnTiles> &scores,
                       PerRow<kRowTiles> &shrink) {
    PerRow<kRowTiles> top;
    bool rises = false;
#pragma unroll
    for (int t = 0; t < kRowTiles; t++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float max = fmaxf(scores[t][0][2 * h], scores[t][0][2 * h + 1]);
#pragma unroll
        for (int n = 1; n < kColumnTiles; n++) {
          max = fmaxf(max, fmaxf(scores[t][n][2 * h], scores[t][n][2 * h + 1]));
        }
        max = fmaxf(max, shuffle_xor(max, 1));
        top[t][h] = fmaxf(max, shuffle_xor(max, 2));
        rises |= exceeds(top[t][h], base_[t][h]);
      }
    }
    rises = any_lane(rises);
    if (!rises) return false;
#pragma unroll
    for (int t = 0; t < kRowTiles; t++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float base = base_[t][h];
        if (exceeds(top[t][h], base)) base_[t][h] = fmaf(top[t][h], scale_, -float{kRaised});
        shrink[t][h] = exp2_fast(base - base_[t][h]);
        sum_[t][h] *= shrink[t][h];
      }
    }
    return true;
  }

  // Replaces a tile of scores by weights relative to the bases of the rows, and adds them up.
  template <int kColumnTiles>
  FA_DEVICE void add(Accumulators<kRowTiles, kColumnTiles> &scores) {
#pragma unroll
    for (int t = 0; t < kRowTiles; t++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int n = 0; n < kColumnTiles; n++) {
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; e++) {
            scores[t][n][e] = exp2_fast(fmaf(scores[t][n][e], scale_, -base_[t][h]));
            sum_[t][h] += scores[t][n][e];
          }
        }
      }
    }
  }

  // Keeps the compiler from moving `add` after the wait for products in flight.
  FA_DEVICE void complete() const { compute_here(sum_[0][0], sum_[0][1]); }

  // Returns the factors for the outputs, and the log-sum-exp of each row in base 2.
  // `sink_log2(row)` is an additional score without a value, -infinity for none.
  template <class SinkOf>
  FA_DEVICE void finish(PerRow<kRowTiles> &factor, PerRow<kRowTiles> &lse_log2,
                        SinkOf sink_log2) const {
    const int lane = thread_index() % 32;
#pragma unroll
    for (int t = 0; t < kRowTiles; t++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float sum = sum_[t][h];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        const float sink = sink_log2(16 * t + 8 * h + lane / 4);
        const float base = base_[t][h] == kNoBase ? kMinusInfinity : base_[t][h];
        const float top = fmaxf(base, sink);
        if (top == kMinusInfinity) {
          factor[t][h] = 0;
          lse_log2[t][h] = kMinusInfinity;
          continue;
        }
        const float shrink = exp2_fast(base - top);
        const float total = sum * shrink + exp2_fast(sink - top);
        factor[t][h] = shrink / total;
        lse_log2[t][h] = top + log2_fast(total);
      }
    }
  }

 private:
  // log2 of the largest weight before a base rises.
  static constexpr float kMostWeight = 8;
  // The base of a row without visible keys so far: finite, so that its weights are 0.
  static constexpr float kNoBase = -3.0e38f;

  FA_DEVICE bool exceeds(float top, float base) const {
    return fmaf(top, scale_, -base) > kMostWeight;
  }

  PerRow<kRowTiles> base_;  // of exponentials of two
  PerRow<kRowTiles> sum_;
  float scale_;
};

// values[row] *= factor[row].
template <int kRowTiles, int kColumnTiles>
FA_DEVICE void scale_rows(Accumulators<kRowTiles, kColumnTiles> &values,
                          const PerRow<kRowTiles> &factor) {
#pragma unroll
  for (int t = 0; t < kRowTiles; t++) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; n++) {
#pragma unroll
      for (int e = 0; e < 4; e++) values[t][n][e] *= factor[t][e / 2];
    }
  }
}

// Weights rounded to T, as the left operand of a product. The rounded accumulators of a thread
// have the layout of this operand of mma.sync and wgmma. [k] holds keys 16 k to 16 k + 15.
template <int kRowTiles, int kColumnTiles>
using Weights = uint32_t[kRowTiles][kColumnTiles / 2][4];

template <class T, int kRowTiles, int kColumnTiles>
FA_DEVICE void pack_weights(Weights<kRowTiles, kColumnTiles> &to,
                            const Accumulators<kRowTiles, kColumnTiles> &from) {
#pragma unroll
  for (int t = 0; t < kRowTiles; t++) {
#pragma unroll
    for (int k = 0; k < kColumnTiles / 2; k++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float(&pair)[4] = from[t][2 * k + i / 2];
        to[t][k][i] = pack<T>(pair[2 * (i % 2)], pair[2 * (i % 2) + 1]);
      }
    }
  }
}

// Weights rounded to E4M3. Four neighbouring lanes of wgmma's left operand have 16 columns, four
// each; those that they hold as accumulators are columns of two tiles:
//
//   lane          0            1            2             3
//   operand       0  1  2  3   4  5  6  7   8  9 10 11   12 13 14 15
//   accumulators  0  1  8  9   2  3 10 11   4  5 12 13    6  7 14 15
//
// Products sum over columns in any order, so the values' keys take the order of the accumulators
// (Transposer).
template <int kColumnTiles>
using E4m3Weights = uint32_t[1][kColumnTiles / 4][4];

template <int kColumnTiles>
FA_DEVICE void pack_weights(E4m3Weights<kColumnTiles> &to,
                            const Accumulators<1, kColumnTiles> &from) {
#pragma unroll
  for (int k = 0; k < kColumnTiles / 4; k++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float(&first)[4] = from[0][4 * k + i / 2 * 2];
      const float(&second)[4] = from[0][4 * k + i / 2 * 2 + 1];
      const int h = 2 * (i % 2);
      to[0][k][i] = pack_e4m3(first[h], first[h + 1], second[h], second[h + 1]);
    }
  }
}

}  // namespace flash_attn
