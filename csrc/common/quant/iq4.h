#pragma once

// Four-bit formats whose fields index a table of 16 levels instead of counting steps.
//
// Fields are stored in halves, per 32 weights: byte i holds weight i in its low and weight i + 16
// in its high four bits.

#include <cstdint>

#include "block.h"

namespace forge {

// The levels of IQ4_NL and IQ4_XS: denser around zero, as weights are.
inline constexpr int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// weight = d * level[q].
struct BlockIQ4_NL {
  static constexpr uint32_t elements = 32;
  PackedF16 d;     // scale
  uint8_t qs[16];  // q: byte i = weight i | weight i + 16 << 4
};
static_assert(sizeof(BlockIQ4_NL) == 18);

// weight = d * (scale - 32) * level[q]; scale has 6 bits; 8 sub-blocks of 32.
struct BlockIQ4_XS {
  static constexpr uint32_t elements = 256;
  PackedF16 d;
  PackedU16 scales_h;   // bits 4..5 of the scale of sub-block s: bits 2s..2s+1
  uint8_t scales_l[4];  // bits 0..3 of the scale of sub-block s: nibble s % 2 of byte s / 2
  uint8_t qs[128];      // 16 bytes a sub-block, each as in BlockIQ4_NL
};
static_assert(sizeof(BlockIQ4_XS) == 136);

// The scale of a sub-block, -32 to 31.
constexpr int iq4_xs_scale(const BlockIQ4_XS& block, uint32_t sub_block) {
  const uint32_t low = nibble(block.scales_l[sub_block / 2], sub_block);
  const uint32_t high = (block.scales_h.value() >> (2 * sub_block)) & 3;
  return static_cast<int>(low | high << 4) - 32;
}

void dequantize_block(const BlockIQ4_NL& block, float* out);
void dequantize_block(const BlockIQ4_XS& block, float* out);

}  // namespace forge
