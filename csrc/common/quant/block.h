#pragma once

// Shared by all block formats: little-endian fields at any address, and the loop over the blocks of
// a tensor.
//
// A block is a struct of bytes and byte-wise fields only. Its alignment is therefore 1 and its size
// the sum of its fields, so a block of a mapped file can be read in place at any offset.

#include <cstdint>

#include "../float16.h"

namespace forge {

// A little-endian 16-bit integer at any address.
struct PackedU16 {
  uint8_t bytes[2];

  constexpr uint16_t value() const { return static_cast<uint16_t>(bytes[0] | bytes[1] << 8); }
  static constexpr PackedU16 from(uint16_t value) {
    return {{static_cast<uint8_t>(value), static_cast<uint8_t>(value >> 8)}};
  }
};

// A little-endian 32-bit integer at any address.
struct PackedU32 {
  uint8_t bytes[4];

  constexpr uint32_t value() const {
    return uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 |
           uint32_t{bytes[3]} << 24;
  }
  static constexpr PackedU32 from(uint32_t value) {
    return {{static_cast<uint8_t>(value), static_cast<uint8_t>(value >> 8),
             static_cast<uint8_t>(value >> 16), static_cast<uint8_t>(value >> 24)}};
  }
};

// An f16 at any address.
struct PackedF16 {
  PackedU16 bits;

  constexpr float value() const { return f16_to_f32(bits.value()); }
  static constexpr PackedF16 from(float value) { return {PackedU16::from(f32_to_f16(value))}; }
};

// The low four bits of `byte` when `index` is even, the high four when it is odd.
constexpr uint32_t nibble(uint8_t byte, uint32_t index) {
  return (byte >> (4 * (index % 2))) & 0xf;
}

// Dequantises `n_elements` weights, a multiple of `Block::elements`, with the overload of
// `dequantize_block` for `Block`. Reads exactly n_elements / elements blocks.
template <typename Block>
void dequantize_blocks(const uint8_t* blocks, float* out, uint64_t n_elements) {
  static_assert(alignof(Block) == 1);
  const Block* block = reinterpret_cast<const Block*>(blocks);
  for (uint64_t i = 0; i < n_elements / Block::elements; ++i) {
    dequantize_block(block[i], out + i * Block::elements);
  }
}

}  // namespace forge
