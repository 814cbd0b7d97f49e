#pragma once

// Formats of ternary models: 256 weights of -1, 0 or 1 under one scale.

#include <cstdint>

#include "block.h"

namespace forge {

// weight = d * (digit - 1). A byte holds five base-3 digits as the fraction byte / 256, rounded
// up: 3 * byte / 256 reads the leading digit, and multiplying by 3 modulo 256 drops it.
struct BlockTQ1_0 {
  static constexpr uint32_t elements = 256;
  uint8_t qs[48];  // digit k of byte i = weight 32k + i; from byte 32 on, weight 160 + 16k + i - 32
  uint8_t qh[4];   // digit k < 4 of byte i = weight 240 + 4k + i
  PackedF16 d;     // scale
};
static_assert(sizeof(BlockTQ1_0) == 54);

// weight = d * (q - 1); q has 2 bits. Encoders never write 3, but it reads as 2 * d.
struct BlockTQ2_0 {
  static constexpr uint32_t elements = 256;
  uint8_t qs[64];  // q of weight 128h + 32k + i: bits 2k..2k+1 of byte 32h + i
  PackedF16 d;     // scale
};
static_assert(sizeof(BlockTQ2_0) == 66);

// Digit `k` (0 is the leading one) of a byte of TQ1_0: 0, 1 or 2.
constexpr int ternary_digit(uint8_t byte, uint32_t k) {
  constexpr uint8_t power_of_3[5] = {1, 3, 9, 27, 81};
  const uint8_t shifted = static_cast<uint8_t>(byte * power_of_3[k]);
  return (shifted * 3) >> 8;
}

void dequantize_block(const BlockTQ1_0& block, float* out);
void dequantize_block(const BlockTQ2_0& block, float* out);

}  // namespace forge
