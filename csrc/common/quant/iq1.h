#pragma once

// Codebook formats below two bits: 256 weights; a field stands for eight ternary values, all of
// them shifted by one eighth up or down.
//
// weight = d * (1 + 2 * scale) * (value ± 1/8); value is -1, 0 or 1.

#include <array>
#include <cstdint>

#include "block.h"

namespace forge {

// 8 sub-blocks of 32, each with one scale and one shift.
struct BlockIQ1_S {
  static constexpr uint32_t elements = 256;
  PackedF16 d;
  uint8_t qs[32];   // byte k = bits 0..7 of the index in iq1_grid of weights 8k..8k+7
  PackedU16 qh[8];  // of sub-block s: bits 3 (k % 4) .. 3 (k % 4) + 2 = bits 8..10 of that index,
                    // k / 4 = s; bits 12..14 scale; bit 15 set: shifted down
};
static_assert(sizeof(BlockIQ1_S) == 50);

// 16 sub-blocks of 16 with one scale each; eight weights share a shift.
struct BlockIQ1_M {
  static constexpr uint32_t elements = 256;
  uint8_t qs[32];       // byte k = bits 0..7 of the index in iq1_grid of weights 8k..8k+7
  uint8_t qh[16];       // nibble k % 2 of byte k / 2: bits 0..2 = bits 8..10 of that index; bit 3
                        // set: shifted down
  PackedU16 scales[4];  // bits 3 (s % 4) .. 3 (s % 4) + 2 of number s / 4 = scale of sub-block s;
                        // bits 12..15 of number n = bits 4n..4n+3 of the f16 d
};
static_assert(sizeof(BlockIQ1_M) == 56);

// The ternary values of eight weights, one signed byte each, the first in the lowest byte.
extern const std::array<uint64_t, 2048> iq1_grid;

void dequantize_block(const BlockIQ1_S& block, float* out);
void dequantize_block(const BlockIQ1_M& block, float* out);

}  // namespace forge
