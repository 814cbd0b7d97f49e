#pragma once

// Three-bit codebook formats: 256 weights in 8 sub-blocks of 32; a field stands for four
// magnitudes. The sign bits of IQ3_XXS are those of `even_signs` in codebook.h.

#include <array>
#include <cstdint>

#include "block.h"

namespace forge {

// weight = ± d * (0.5 + scale) / 2 * magnitude.
struct BlockIQ3_XXS {
  static constexpr uint32_t elements = 256;
  PackedF16 d;
  uint8_t qs[64];             // byte g = index in iq3_xxs_grid of weights 4g..4g+3
  PackedU32 scales_signs[8];  // of sub-block s: bits 28..31 scale; bits 7k..7k+6 signs of its
                              // weights 8k..8k+7 (k = 0..3), see even_signs
};
static_assert(sizeof(BlockIQ3_XXS) == 98);

// weight = ± d * (1 + 2 * scale) * magnitude.
struct BlockIQ3_S {
  static constexpr uint32_t elements = 256;
  PackedF16 d;
  uint8_t qs[64];     // byte g = bits 0..7 of the index in iq3_s_grid of weights 4g..4g+3
  uint8_t qh[8];      // bit g % 8 of byte g / 8 = bit 8 of that index
  uint8_t signs[32];  // bit i % 8 of byte i / 8: weight i is negative
  uint8_t scales[4];  // scale of sub-block s: nibble s % 2 of byte s / 2
};
static_assert(sizeof(BlockIQ3_S) == 110);

// The magnitudes of four weights, one byte each, the first in the lowest byte.
extern const std::array<uint32_t, 256> iq3_xxs_grid;
extern const std::array<uint32_t, 512> iq3_s_grid;

void dequantize_block(const BlockIQ3_XXS& block, float* out);
void dequantize_block(const BlockIQ3_S& block, float* out);

}  // namespace forge
