#pragma once

// FP8: 32 weights of E4M3 (Micikevicius et al., "FP8 Formats for Deep Learning", arXiv:2209.05433)
// under one float32 scale. GGUF has no such type; matrices of safetensors convert to it
// without loss, for any grouping of their scales.

#include <bit>
#include <cstdint>

#include "block.h"

namespace forge {

// The code whose magnitude is NaN in files. In blocks it is 480, the number that its exponent and
// fraction stand for, and a block with a NaN has NaN as its scale.
inline constexpr uint8_t e4m3_nan = 0x7f;

// A sign, four bits of exponent with a bias of 7, three of fraction: moved into the place of a
// float16's, whose bias is 15, they are the number times 2^-8, subnormal ones included.
constexpr float e4m3_to_f32(uint8_t code) {
  return f16_to_f32(static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7f) << 7)) * 256.0f;
}

// weight = d * e4m3(q).
struct BlockFP8 {
  static constexpr uint32_t elements = 32;
  PackedU32 d;     // scale, a float32
  uint8_t qs[32];  // q: byte i = weight i
};
static_assert(sizeof(BlockFP8) == 36);

inline void dequantize_block(const BlockFP8& block, float* out) {
  const float d = std::bit_cast<float>(block.d.value());
  for (uint32_t i = 0; i < 32; ++i) out[i] = d * e4m3_to_f32(block.qs[i]);
}

}  // namespace forge
