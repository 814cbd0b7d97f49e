#pragma once

// The "K" block formats of GGUF: 256 weights in sub-blocks of 16 or 32. A sub-block's scale (and
// minimum) is a small integer, multiplied by an f16 that the whole block shares.
//
// Every product below fits a float32's 24-bit significand (an f16 has 11 bits, a scale at most 7, q
// at most 5), so it is exact: a result has at most the one rounding of its subtraction, and does
// not depend on whether the compiler contracts it to a fused multiply-add.

#include <cstdint>

#include "block.h"

namespace forge {

// weight = d * scale * q - dmin * min; q has 2 bits; 16 sub-blocks of 16.
struct BlockQ2_K {
  static constexpr uint32_t elements = 256;
  uint8_t scales[16];  // byte s = sub-block s: scale in bits 0..3, min in bits 4..7
  uint8_t qs[64];      // q of sub-block s: see two_bit_fields(s)
  PackedF16 d;
  PackedF16 dmin;
};
static_assert(sizeof(BlockQ2_K) == 84);

// weight = d * (scale - 32) * (q - 4); q has 3 bits, scale 6; 16 sub-blocks of 16.
struct BlockQ3_K {
  static constexpr uint32_t elements = 256;
  uint8_t hmask[32];   // bit 2 of q of weight i: byte i % 32, bit i / 32
  uint8_t qs[64];      // bits 0..1 of q of sub-block s: see two_bit_fields(s)
  uint8_t scales[12];  // see q3_k_scale
  PackedF16 d;
};
static_assert(sizeof(BlockQ3_K) == 110);

// weight = d * scale * q - dmin * min; q has 4 bits, scale and min 6; 8 sub-blocks of 32.
struct BlockQ4_K {
  static constexpr uint32_t elements = 256;
  PackedF16 d;
  PackedF16 dmin;
  uint8_t scales[12];  // see unpack_scale_min
  uint8_t qs[128];     // bytes 32p..32p+31 = sub-block 2p in bits 0..3, sub-block 2p+1 in bits 4..7
};
static_assert(sizeof(BlockQ4_K) == 144);

// weight = d * scale * q - dmin * min; q has 5 bits, scale and min 6; 8 sub-blocks of 32.
struct BlockQ5_K {
  static constexpr uint32_t elements = 256;
  PackedF16 d;
  PackedF16 dmin;
  uint8_t scales[12];  // see unpack_scale_min
  uint8_t qh[32];      // bit 4 of q of weight i: byte i % 32, bit i / 32
  uint8_t qs[128];     // bits 0..3 of q, as in BlockQ4_K
};
static_assert(sizeof(BlockQ5_K) == 176);

// weight = d * scale * (q - 32); q has 6 bits, scale is a signed byte; 16 sub-blocks of 16.
struct BlockQ6_K {
  static constexpr uint32_t elements = 256;
  uint8_t ql[128];    // bits 0..3 of q of sub-block s: see q6_k_low_fields(s)
  uint8_t qh[64];     // bits 4..5 of q of sub-block s: see two_bit_fields(s)
  int8_t scales[16];  // byte s = sub-block s
  PackedF16 d;
};
static_assert(sizeof(BlockQ6_K) == 210);

// Places of the 16 fields of a sub-block: bytes first..first + 15, from bit `shift` on.
struct FieldPosition {
  uint32_t first;
  uint32_t shift;
};

// Two-bit fields: each half of a block (128 weights) has 32 bytes, filled from the low bits up
// with 32 weights (two sub-blocks) at a time.
constexpr FieldPosition two_bit_fields(uint32_t sub_block) {
  return {32 * (sub_block / 8) + 16 * (sub_block % 2), 2 * ((sub_block / 2) % 4)};
}

// The low four bits in Q6_K: each half of a block has 64 bytes, filled from the low bits up with
// 64 weights (four sub-blocks) at a time.
constexpr FieldPosition q6_k_low_fields(uint32_t sub_block) {
  return {64 * (sub_block / 8) + 16 * (sub_block % 4), 4 * ((sub_block / 4) % 2)};
}

// The scale of sub-block s of Q3_K, 0 to 63: nibble s / 8 of byte s % 8 as its bits 0..3, and bits
// 2 (s / 4) .. 2 (s / 4) + 1 of byte 8 + s % 4 as its bits 4..5.
constexpr uint32_t q3_k_scale(const uint8_t (&scales)[12], uint32_t sub_block) {
  const uint32_t low = nibble(scales[sub_block % 8], sub_block / 8);
  const uint32_t high = (scales[8 + sub_block % 4] >> (2 * (sub_block / 4))) & 3;
  return low | high << 4;
}

// Writes what `q3_k_scale` reads, into bytes that were zero before the first sub-block.
constexpr void pack_q3_k_scale(uint8_t (&scales)[12], uint32_t sub_block, uint32_t scale) {
  scales[sub_block % 8] |= static_cast<uint8_t>((scale & 0xf) << (4 * (sub_block / 8)));
  scales[8 + sub_block % 4] |= static_cast<uint8_t>((scale >> 4) << (2 * (sub_block / 4)));
}

// The integer scale and minimum of a sub-block, 0 to 63 each.
struct ScaleMin {
  uint8_t scale;
  uint8_t min;
};

// Reads the scale and minimum of a sub-block of Q4_K or Q5_K. Sub-blocks 0..3 have bits 0..5 of
// byte s (scale) and byte s + 4 (min). Sub-blocks 4..7 have the nibbles of byte s + 4 (scale low,
// min high) as bits 0..3 and the two bits left over in bytes s - 4 and s as bits 4..5.
constexpr ScaleMin unpack_scale_min(const uint8_t (&scales)[12], uint32_t sub_block) {
  const uint32_t s = sub_block;
  if (s < 4) {
    return {static_cast<uint8_t>(scales[s] & 63), static_cast<uint8_t>(scales[s + 4] & 63)};
  }
  return {static_cast<uint8_t>((scales[s + 4] & 0xf) | (scales[s - 4] >> 6) << 4),
          static_cast<uint8_t>((scales[s + 4] >> 4) | (scales[s] >> 6) << 4)};
}

// Writes what `unpack_scale_min` reads, into bytes that were zero before the first sub-block.
constexpr void pack_scale_min(uint8_t (&scales)[12], uint32_t sub_block, ScaleMin value) {
  const uint32_t s = sub_block;
  if (s < 4) {
    scales[s] |= value.scale;
    scales[s + 4] |= value.min;
  } else {
    scales[s + 4] |= static_cast<uint8_t>((value.scale & 0xf) | (value.min & 0xf) << 4);
    scales[s - 4] |= static_cast<uint8_t>((value.scale >> 4) << 6);
    scales[s] |= static_cast<uint8_t>((value.min >> 4) << 6);
  }
}

void dequantize_block(const BlockQ2_K& block, float* out);
void dequantize_block(const BlockQ3_K& block, float* out);
void dequantize_block(const BlockQ4_K& block, float* out);
void dequantize_block(const BlockQ5_K& block, float* out);
void dequantize_block(const BlockQ6_K& block, float* out);

}  // namespace forge
