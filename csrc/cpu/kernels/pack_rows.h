#pragma once

// Reads the block formats of files for packing: read(block of a row, b) returns the fields of its
// b-th 32 columns as unsigned bytes, and set_scales(row, block, panel) copies the scales.

#include "../../common/quant/fp4.h"
#include "../../common/quant/fp8.h"
#include "../../common/quant/iq4.h"
#include "../../common/quant/k_quants.h"
#include "../../common/quant/legacy.h"
#include "../panel_layout.h"
#include "simd.h"

namespace forge::cpu::FORGE_TARGET {

// Columns 0 to 15 and 16 to 31 of a block.
struct RowFields {
  Bytes low, high;
};

// ---- fields ---------------------------------------------------------------------------------

FORGE_INLINE RowFields nibbles(const uint8_t* qs) {
  const Bytes q = load_bytes(qs);
  return {q & 15, q >> 4};
}

FORGE_INLINE RowFields read(const BlockQ4_0& block, uint32_t) { return nibbles(block.qs); }
FORGE_INLINE RowFields read(const BlockQ4_1& block, uint32_t) { return nibbles(block.qs); }
FORGE_INLINE RowFields read(const BlockIQ4_NL& block, uint32_t) { return nibbles(block.qs); }
FORGE_INLINE RowFields read(const BlockMXFP4& block, uint32_t) { return nibbles(block.qs); }
FORGE_INLINE RowFields read(const BlockFP4& block, uint32_t b) {
  return nibbles(block.qs + 16 * b);
}
FORGE_INLINE RowFields read(const BlockIQ4_XS& block, uint32_t b) {
  return nibbles(block.qs + 16 * b);
}

template <class Block>
FORGE_INLINE RowFields read_five_bits(const Block& block) {
  const RowFields q = nibbles(block.qs);
  return {q.low | (expand_bits(block.qh.bytes) & 16),
          q.high | (expand_bits(block.qh.bytes + 2) & 16)};
}
FORGE_INLINE RowFields read(const BlockQ5_0& block, uint32_t) { return read_five_bits(block); }
FORGE_INLINE RowFields read(const BlockQ5_1& block, uint32_t) { return read_five_bits(block); }

// Signed in the file.
FORGE_INLINE RowFields read(const BlockQ8_0& block, uint32_t) {
  const auto* qs = reinterpret_cast<const uint8_t*>(block.qs);
  return {load_bytes(qs) ^ 128, load_bytes(qs + 16) ^ 128};
}

FORGE_INLINE RowFields operator>>(RowFields a, uint32_t bits) {
  const Bytes by = Bytes{} + static_cast<uint8_t>(bits);
  return {a.low >> by, a.high >> by};
}
FORGE_INLINE RowFields operator<<(RowFields a, int bits) { return {a.low << bits, a.high << bits}; }
FORGE_INLINE RowFields operator&(RowFields a, uint8_t mask) {
  return {a.low & mask, a.high & mask};
}
FORGE_INLINE RowFields operator|(RowFields a, RowFields b) {
  return {a.low | b.low, a.high | b.high};
}
FORGE_INLINE RowFields load_fields(const uint8_t* at) {
  return {load_bytes(at), load_bytes(at + 16)};
}

FORGE_INLINE RowFields read(const BlockQ4_K& block, uint32_t b) {
  return load_fields(block.qs + 32 * (b / 2)) >> 4 * (b % 2) & 15;
}
FORGE_INLINE RowFields read(const BlockQ5_K& block, uint32_t b) {
  return (load_fields(block.qs + 32 * (b / 2)) >> 4 * (b % 2) & 15) |
         (load_fields(block.qh) >> b & 1) << 4;
}
// Blocks of 32 columns are pairs of sub-blocks: see two_bit_fields and q6_k_low_fields.
FORGE_INLINE RowFields read_two_bits(const uint8_t (&qs)[64], uint32_t b) {
  return load_fields(qs + 32 * (b / 4)) >> 2 * (b % 4) & 3;
}
FORGE_INLINE RowFields read(const BlockQ2_K& block, uint32_t b) {
  return read_two_bits(block.qs, b);
}
FORGE_INLINE RowFields read(const BlockQ3_K& block, uint32_t b) {
  return read_two_bits(block.qs, b) | (load_fields(block.hmask) >> b & 1) << 2;
}
FORGE_INLINE RowFields read(const BlockQ6_K& block, uint32_t b) {
  const uint8_t* low = block.ql + 64 * (b / 4) + 32 * (b % 2);
  return (load_fields(low) >> 4 * (b / 2 % 2) & 15) | read_two_bits(block.qh, b) << 4;
}

// ---- scales ---------------------------------------------------------------------------------

template <class Block, class Panel>
FORGE_INLINE void set_scales(uint32_t row, const Block& block, Panel& panel) {
  panel.d[row] = block.d.bits;
}
template <class Panel>
FORGE_INLINE void set_scales(uint32_t row, const BlockQ4_1& block, Panel& panel) {
  panel.d[row] = block.d.bits;
  panel.m[row] = block.m.bits;
}
template <class Panel>
FORGE_INLINE void set_scales(uint32_t row, const BlockQ5_1& block, Panel& panel) {
  panel.d[row] = block.d.bits;
  panel.m[row] = block.m.bits;
}

// 2^(e - 128) as bfloat16, below its normal range too: see mxfp4_half_scale.
template <class Panel>
FORGE_INLINE void set_scales(uint32_t row, const BlockMXFP4& block, Panel& panel) {
  const uint32_t number = block.e < 2 ? 0x20u << block.e : (block.e - 1u) << 7;
  const uint32_t bits = block.e == 255 ? 0x7fc0u : number;
  panel.d[row] = {{static_cast<uint8_t>(bits), static_cast<uint8_t>(bits >> 8)}};
}

template <class Panel>
FORGE_INLINE void set_scales(uint32_t row, const BlockFP4& block, Panel& panel) {
  memcpy(&panel.d[row], &block.d, 4);
  panel.d[row] *= 128;
  for (uint32_t s = 0; s < 4; ++s) panel.blocks[s / 2].scale[s % 2][row] = block.scales[s];
}

// The same as unpack_scale_min, for all sub-blocks at once: bytes 0..7 are scales, 8..15 minima.
FORGE_INLINE Bytes scales_and_mins(const uint8_t (&packed)[12]) {
  uint32_t a, b, c;
  memcpy(&a, packed, 4);
  memcpy(&b, packed + 4, 4);
  memcpy(&c, packed + 8, 4);
  const uint32_t words[4] = {a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030),
                             b & 0x3f3f3f3f, (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030)};
  Bytes out;
  memcpy(&out, words, 16);
  return out;
}

template <class Block, class Panel>
FORGE_INLINE void set_scales_and_mins(uint32_t row, const Block& block, Panel& panel) {
  panel.d[row] = block.d.bits;
  panel.dmin[row] = block.dmin.bits;
  const Bytes all = scales_and_mins(block.scales);
  for (uint32_t b = 0; b < 8; ++b) {
    panel.blocks[b].scale[0][row] = static_cast<int8_t>(all[b]);
    panel.blocks[b].min[0][row] = static_cast<int8_t>(all[8 + b]);
  }
}
template <class Panel>
FORGE_INLINE void set_scales(uint32_t row, const BlockQ4_K& block, Panel& panel) {
  set_scales_and_mins(row, block, panel);
}
template <class Panel>
FORGE_INLINE void set_scales(uint32_t row, const BlockQ5_K& block, Panel& panel) {
  set_scales_and_mins(row, block, panel);
}

template <class Panel>
FORGE_INLINE void set_scales(uint32_t row, const BlockQ2_K& block, Panel& panel) {
  panel.d[row] = block.d.bits;
  panel.dmin[row] = block.dmin.bits;
  for (uint32_t s = 0; s < 16; ++s) {
    panel.blocks[s / 2].scale[s % 2][row] = block.scales[s] & 15;
    panel.blocks[s / 2].min[s % 2][row] = block.scales[s] >> 4;
  }
}

template <class Panel>
FORGE_INLINE void set_scales(uint32_t row, const BlockQ3_K& block, Panel& panel) {
  panel.d[row] = block.d.bits;
  for (uint32_t s = 0; s < 16; ++s) {
    const int low = block.scales[s % 8] >> (4 * (s / 8)) & 15;
    const int high = block.scales[8 + s % 4] >> (2 * (s / 4)) & 3;
    panel.blocks[s / 2].scale[s % 2][row] = static_cast<int8_t>((low | high << 4) - 32);
  }
}

template <class Panel>
FORGE_INLINE void set_scales(uint32_t row, const BlockQ6_K& block, Panel& panel) {
  panel.d[row] = block.d.bits;
  for (uint32_t s = 0; s < 16; ++s) panel.blocks[s / 2].scale[s % 2][row] = block.scales[s];
}

template <class Panel>
FORGE_INLINE void set_scales(uint32_t row, const BlockIQ4_XS& block, Panel& panel) {
  panel.d[row] = block.d.bits;
  const int high = block.scales_h.bytes[0] | block.scales_h.bytes[1] << 8;
  for (uint32_t s = 0; s < 8; ++s) {
    const int low = block.scales_l[s / 2] >> (4 * (s % 2)) & 15;
    panel.blocks[s].scale[0][row] =
        static_cast<int8_t>((low | (high >> (2 * s) & 3) << 4) - 32);
  }
}

}  // namespace forge::cpu::FORGE_TARGET
