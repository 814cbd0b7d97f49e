#pragma once

// Two-bit codebook formats: 256 weights; a field stands for eight magnitudes.
//
// weight = ± d * (0.5 + scale) / 4 * magnitude. The sign bits of IQ2_XXS and IQ2_XS are those of
// `even_signs` in codebook.h.

#include <array>
#include <cstdint>

#include "block.h"

namespace forge {

// 8 sub-blocks of 32, each a scale, four codewords and their signs in 64 bits.
struct BlockIQ2_XXS {
  static constexpr uint32_t elements = 256;
  struct SubBlock {
    uint8_t qs[4];          // byte k = index in iq2_xxs_grid of weights 8k..8k+7
    PackedU32 scale_signs;  // bits 28..31 scale; bits 7k..7k+6 signs of weights 8k..8k+7, see
                            // even_signs
  };
  PackedF16 d;
  SubBlock sub_blocks[8];
};
static_assert(sizeof(BlockIQ2_XXS) == 66);

// 16 sub-blocks of 16.
struct BlockIQ2_XS {
  static constexpr uint32_t elements = 256;
  PackedF16 d;
  PackedU16 qs[32];   // of weights 8k..8k+7: bits 0..8 index in iq2_xs_grid, 9..15 signs, see
                      // even_signs
  uint8_t scales[8];  // scale of sub-block s: nibble s % 2 of byte s / 2
};
static_assert(sizeof(BlockIQ2_XS) == 74);

// 16 sub-blocks of 16.
struct BlockIQ2_S {
  static constexpr uint32_t elements = 256;
  PackedF16 d;
  uint8_t qs[32];     // byte k = bits 0..7 of the index in iq2_s_grid of weights 8k..8k+7
  uint8_t signs[32];  // bit i % 8 of byte i / 8: weight i is negative
  uint8_t qh[8];      // bits 8..9 of that index: bits 2 (k % 4) .. 2 (k % 4) + 1 of byte k / 4
  uint8_t scales[8];  // scale of sub-block s: nibble s % 2 of byte s / 2
};
static_assert(sizeof(BlockIQ2_S) == 82);

// The magnitudes of eight weights, one byte each, the first in the lowest byte.
extern const std::array<uint64_t, 256> iq2_xxs_grid;
extern const std::array<uint64_t, 512> iq2_xs_grid;
extern const std::array<uint64_t, 1024> iq2_s_grid;

void dequantize_block(const BlockIQ2_XXS& block, float* out);
void dequantize_block(const BlockIQ2_XS& block, float* out);
void dequantize_block(const BlockIQ2_S& block, float* out);

}  // namespace forge
