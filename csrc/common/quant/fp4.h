#pragma once

// Four-bit floats (E2M1: one sign, two exponent and one fraction bit) under two kinds of scales:
// MXFP4 of the OCP Microscaling specification 1.0, and FP4, which matrices in NVIDIA's NVFP4
// convert to without loss.
//
// Fields are stored in halves, per 32 weights: byte i holds weight i in its low and weight i + 16
// in its high four bits.

#include <bit>
#include <cstdint>

#include "block.h"
#include "fp8.h"

namespace forge {

// The sixteen E2M1 values, doubled so that they are integers.
inline constexpr int8_t e2m1_levels[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                           0, -1, -2, -3, -4, -6, -8, -12};

// weight = mxfp4_half_scale(e) * level[q].
struct BlockMXFP4 {
  static constexpr uint32_t elements = 32;
  uint8_t e;       // exponent of the scale
  uint8_t qs[16];  // q: byte i = weight i | weight i + 16 << 4
};
static_assert(sizeof(BlockMXFP4) == 17);

// weight = d / 2 * e4m3(scale) * level[q]; 4 sub-blocks of 16 with a scale each. The NaN of E4M3
// is 480 here; a block with a NaN has NaN as d.
struct BlockFP4 {
  static constexpr uint32_t elements = 64;
  PackedU32 d;        // scale of the matrix, a float32
  uint8_t scales[4];  // of sub-block s, in E4M3
  uint8_t qs[32];     // 16 bytes for each 32 weights, as in BlockMXFP4
};
static_assert(sizeof(BlockFP4) == 40);

// 2^(e - 128): half the scale 2^(e - 127), since the levels are doubled. 255 is NaN.
constexpr float mxfp4_half_scale(uint8_t e) {
  // Exponents 0 and 1 are below float32's smallest normal number, 2^-126.
  const uint32_t number = e < 2 ? 0x00200000u << e : uint32_t{e - 1u} << 23;
  return std::bit_cast<float>(e == 255 ? 0x7fc00000u : number);
}

inline void dequantize_block(const BlockMXFP4& block, float* out) {
  const float scale = mxfp4_half_scale(block.e);
  for (uint32_t i = 0; i < 32; ++i) {
    out[i] = scale * static_cast<float>(e2m1_levels[nibble(block.qs[i % 16], i / 16)]);
  }
}

inline void dequantize_block(const BlockFP4& block, float* out) {
  const float half = 0.5f * std::bit_cast<float>(block.d.value());
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t q = nibble(block.qs[i / 32 * 16 + i % 16], i / 16);
    out[i] = half * e4m3_to_f32(block.scales[i / 16]) * static_cast<float>(e2m1_levels[q]);
  }
}

}  // namespace forge
