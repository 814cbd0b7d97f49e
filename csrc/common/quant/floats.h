#pragma once

// The unquantised formats, as blocks of one weight.

#include <bit>
#include <cstdint>

#include "block.h"

namespace forge {

struct BlockF32 {
  static constexpr uint32_t elements = 1;
  PackedU32 bits;
};

struct BlockF16 {
  static constexpr uint32_t elements = 1;
  PackedF16 value;
};

struct BlockBF16 {
  static constexpr uint32_t elements = 1;
  PackedU16 bits;
};

inline void dequantize_block(const BlockF32& block, float* out) {
  *out = std::bit_cast<float>(block.bits.value());
}

inline void dequantize_block(const BlockF16& block, float* out) { *out = block.value.value(); }

inline void dequantize_block(const BlockBF16& block, float* out) {
  *out = bf16_to_f32(block.bits.value());
}

}  // namespace forge
