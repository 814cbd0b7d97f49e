#pragma once

// Tiles of tokens by unpacked panels with the matrix products of Arm's FEAT_I8MM. One instruction
// multiplies 8 columns of 2 rows with those of 2 tokens: twice the products of a dot product. Sums
// are those of int8_tile.h to the bit.
//
// 16 bytes hold 8 columns of a pair of rows, or of a pair of tokens. Four lanes of sums are
// (row 0, token 0), (row 0, token 1), (row 1, token 0), (row 1, token 1).

#include "int8_tile.h"

namespace forge::cpu::FORGE_TARGET {

constexpr uint32_t kMatrixCols = 8;
constexpr int kTileRowPairs = 4;  // 12 sums of integers, 12 of floats and 4 weights of 32 registers

// Stores a block with a byte for each weight: [columns / 8][row pair][2][8].
template <class Format>
FORGE_INLINE void unpack_bytes(const typename Format::Panel& panel, uint32_t block,
                               uint8_t (&out)[8][kGroupBytes]) {
  unrolled<4>([&]<int i>() FORGE_ALWAYS_INLINE {
    const ByteGroup low = Format::template group<2 * i>(panel, block);
    const ByteGroup high = Format::template group<2 * i + 1>(panel, block);
    uint8_t* to = out[2 * i];
    for (int v = 0; v < Group::kVectors; ++v, to += 32) {
      const ByteVec first = interleave_low<4>(low.part[v], high.part[v]);
      const ByteVec second = interleave_high<4>(low.part[v], high.part[v]);
      memcpy(to, &first, sizeof first);
      memcpy(to + 16, &second, sizeof second);
    }
  });
}

// The tokens of a tile in pairs; the last one repeats an odd token. multiply() multiplies them with
// unpacked panels.
template <class Format, int n_tokens>
class TokenTile {
 public:
  using Panel = typename Format::Panel;

  TokenTile(const ActivationBlock* const (&tokens)[n_tokens], uint64_t length) : length_(length) {
    for (uint64_t at = 0; at < length; ++at) {
      for (int p = 0; p < kPairs; ++p) {
        const ActivationBlock& a = tokens[2 * p][at];
        const ActivationBlock& b = tokens[2 * p + 1 < n_tokens ? 2 * p + 1 : 2 * p][at];
        Block& to = blocks_[at][p];
        for (uint32_t i = 0; i < kBlockCols / kMatrixCols; ++i) {
          vst1q_s8(to.q[i],
                   vcombine_s8(vld1_s8(a.q + kMatrixCols * i), vld1_s8(b.q + kMatrixCols * i)));
        }
        to.scale = {a.scale, b.scale};
        for (int half = 0; half < kHalves; ++half) {
          constexpr int kFirst = kHalves == 1 ? 0 : 1;
          to.start[half] = {corrected(a.minus_8_sums[kFirst + half]),
                            corrected(b.minus_8_sums[kFirst + half])};
          to.sum[half] = {a.scaled_sum[kFirst + half], b.scaled_sum[kFirst + half]};
        }
      }
    }
  }

  // sums[t][row] += the product of row `row` of the panel with token t, or = if `begins`.
  void multiply(const Panel* panel, bool begins, float* sums, uint32_t sums_stride) const {
    for (int row = 0; row < static_cast<int>(kPanelRows); row += 2 * kTileRowPairs) {
      multiply_rows(panel, row, begins, sums + row, sums_stride);
    }
  }

 private:
  static constexpr int kPairs = (n_tokens + 1) / 2;
  static constexpr int kHalves = Panel::kHalves;

  // Values of two tokens.
  template <class T>
  struct Two {
    T value[2];
  };
  struct Block {
    int8_t q[kBlockCols / kMatrixCols][2 * kMatrixCols];
    Two<float> scale;
    Two<int32_t> start[kHalves];
    Two<float> sum[kHalves];
  };

  static int32_t corrected(int32_t minus_8_sum) {
    return bias_correction<Format::kBias>(minus_8_sum)[0];
  }
  static FORGE_ALWAYS_INLINE float32x4_t repeat(const Two<float>& two) {
    const float32x2_t lanes = vld1_f32(two.value);
    return vcombine_f32(lanes, lanes);
  }
  static FORGE_ALWAYS_INLINE int32x4_t repeat(const Two<int32_t>& two) {
    const int32x2_t lanes = vld1_s32(two.value);
    return vcombine_s32(lanes, lanes);
  }
  // The factors of 2 kTileRowPairs rows, twice each.
  static FORGE_ALWAYS_INLINE void load_twice(const float* from, float32x4_t (&out)[kTileRowPairs]) {
    for (int pair = 0; pair < kTileRowPairs; pair += 2) {
      const float32x4_t rows = vld1q_f32(from + 2 * pair);
      out[pair] = vzip1q_f32(rows, rows);
      out[pair + 1] = vzip2q_f32(rows, rows);
    }
  }

  FORGE_ALWAYS_INLINE void multiply_rows(const Panel* panel, int row, bool begins, float* sums,
                                         uint32_t sums_stride) const {
    float32x4_t total[kPairs][kTileRowPairs] = {};
    if (!begins) {
      for (int p = 0; p < kPairs; ++p) {
        const float* a = sums + 2 * p * sums_stride;
        const float* b = 2 * p + 1 < n_tokens ? a + sums_stride : a;
        for (int pair = 0; pair < kTileRowPairs; ++pair) {
          const float32x2_t x = vld1_f32(a + 2 * pair), y = vld1_f32(b + 2 * pair);
          total[p][pair] = vcombine_f32(vzip1_f32(x, y), vzip2_f32(x, y));
        }
      }
    }
    for (uint64_t at = 0; at < length_; ++at, ++panel) {
      const Block(&tokens)[kPairs] = blocks_[at];
      unrolled<kHalves>([&]<int half>() FORGE_ALWAYS_INLINE {
        int32x4_t dots[kPairs][kTileRowPairs];
        for (int p = 0; p < kPairs; ++p) {
          for (int32x4_t& dot : dots[p]) dot = repeat(tokens[p].start[half]);
        }
        unrolled<4 / kHalves>([&]<int i>() FORGE_ALWAYS_INLINE {
          constexpr int k = 4 / kHalves * half + i;
          uint8x16_t w[kTileRowPairs];
          for (int pair = 0; pair < kTileRowPairs; ++pair) {
            w[pair] = vld1q_u8(panel->bytes[2 * k] + 16 * (row / 2 + pair));
          }
          for (int p = 0; p < kPairs; ++p) {
            const int8x16_t x = vld1q_s8(tokens[p].q[k]);
            for (int pair = 0; pair < kTileRowPairs; ++pair) {
              dots[p][pair] = vusmmlaq_s32(dots[p][pair], w[pair], x);
            }
          }
        });
        float32x4_t factor[kTileRowPairs];
        load_twice(panel->factors[half] + row, factor);
        for (int p = 0; p < kPairs; ++p) {
          const float32x4_t by = repeat(tokens[p].scale);
          for (int pair = 0; pair < kTileRowPairs; ++pair) {
            total[p][pair] = vfmaq_f32(total[p][pair], vcvtq_f32_s32(dots[p][pair]),
                                       vmulq_f32(factor[pair], by));
          }
        }
        if constexpr (Panel::kHasMin) {
          load_twice(panel->factors[kHalves + half] + row, factor);
          for (int p = 0; p < kPairs; ++p) {
            const float32x4_t by = repeat(tokens[p].sum[half]);
            for (int pair = 0; pair < kTileRowPairs; ++pair) {
              total[p][pair] = vfmaq_f32(total[p][pair], factor[pair], by);
            }
          }
        }
      });
    }
    for (int p = 0; p < kPairs; ++p) {
      float* to = sums + 2 * p * sums_stride;
      for (int pair = 0; pair < kTileRowPairs; pair += 2) {
        const float32x4_t x = total[p][pair], y = total[p][pair + 1];
        vst1q_f32(to + 2 * pair, vuzp1q_f32(x, y));
        if (2 * p + 1 < n_tokens) vst1q_f32(to + sums_stride + 2 * pair, vuzp2q_f32(x, y));
      }
    }
  }

  uint64_t length_;
  alignas(64) Block blocks_[kUnpackedCols / kBlockCols][kPairs];
};

}  // namespace forge::cpu::FORGE_TARGET
