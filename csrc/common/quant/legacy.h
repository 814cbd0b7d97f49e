#pragma once

// The first generation of GGUF block formats: 32 weights under one scale.
//
// Four-bit fields are stored in halves: byte i holds weight i in its low and weight i + 16 in its
// high four bits.
//
// Every product is exact in float32 (an f16 has 11 significant bits, a field at most 8), so a
// result has at most the one rounding of its addition, with or without a fused multiply-add.

#include <cstdint>

#include "block.h"

namespace forge {

// weight = d * (q - 8); q has 4 bits.
struct BlockQ4_0 {
  static constexpr uint32_t elements = 32;
  PackedF16 d;     // scale
  uint8_t qs[16];  // q: byte i = weight i | weight i + 16 << 4
};
static_assert(sizeof(BlockQ4_0) == 18);

// weight = d * q + m; q has 4 bits.
struct BlockQ4_1 {
  static constexpr uint32_t elements = 32;
  PackedF16 d;     // scale
  PackedF16 m;     // minimum
  uint8_t qs[16];  // q: byte i = weight i | weight i + 16 << 4
};
static_assert(sizeof(BlockQ4_1) == 20);

// weight = d * (q - 16); q has 5 bits.
struct BlockQ5_0 {
  static constexpr uint32_t elements = 32;
  PackedF16 d;     // scale
  PackedU32 qh;    // bit i = bit 4 of q of weight i
  uint8_t qs[16];  // bits 0..3 of q: byte i = weight i | weight i + 16 << 4
};
static_assert(sizeof(BlockQ5_0) == 22);

// weight = d * q + m; q has 5 bits.
struct BlockQ5_1 {
  static constexpr uint32_t elements = 32;
  PackedF16 d;     // scale
  PackedF16 m;     // minimum
  PackedU32 qh;    // bit i = bit 4 of q of weight i
  uint8_t qs[16];  // bits 0..3 of q: byte i = weight i | weight i + 16 << 4
};
static_assert(sizeof(BlockQ5_1) == 24);

// weight = d * q.
struct BlockQ8_0 {
  static constexpr uint32_t elements = 32;
  PackedF16 d;    // scale
  int8_t qs[32];  // q: byte i = weight i
};
static_assert(sizeof(BlockQ8_0) == 34);

void dequantize_block(const BlockQ4_0& block, float* out);
void dequantize_block(const BlockQ4_1& block, float* out);
void dequantize_block(const BlockQ5_0& block, float* out);
void dequantize_block(const BlockQ5_1& block, float* out);
void dequantize_block(const BlockQ8_0& block, float* out);

}  // namespace forge
