// MXFP4, the four-bit float format of the OCP Microscaling specification 1.0, in GGUF's block
// order: 32 weights of one sign, two exponent and one fraction bit under a shared power of two.
#ifndef FORGE_COMMON_QUANT_MXFP4_H
#define FORGE_COMMON_QUANT_MXFP4_H

#include <bit>
#include <cstdint>

#include "block.h"

namespace forge {

/// The sixteen E2M1 values, doubled so that they are integers.
inline constexpr int8_t mxfp4_levels[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

/// weight = mxfp4_half_scale(e) * level[q].
struct BlockMXFP4 {
  static constexpr uint32_t elements = 32;
  uint8_t e;       // exponent of the scale
  uint8_t qs[16];  // q: byte i = weight i | weight i + 16 << 4
};
static_assert(sizeof(BlockMXFP4) == 17);

/// 2^(e - 128): half the scale 2^(e - 127), since the levels are doubled. 255 is NaN.
constexpr float mxfp4_half_scale(uint8_t e) {
  // Exponents 0 and 1 are below float32's smallest normal number, 2^-126.
  const uint32_t number = e < 2 ? 0x00200000u << e : uint32_t{e - 1u} << 23;
  return std::bit_cast<float>(e == 255 ? 0x7fc00000u : number);
}

inline void dequantize_block(const BlockMXFP4& block, float* out) {
  const float scale = mxfp4_half_scale(block.e);
  for (uint32_t i = 0; i < 32; ++i) {
    out[i] = scale * static_cast<float>(mxfp4_levels[nibble(block.qs[i % 16], i / 16)]);
  }
}

}  // namespace forge

#endif
