#pragma once

// The weight formats as kernels read them: a Format hands out a row's weights in order, in groups
// of 16, each group dequantised to floats. Products of scales and fields are exact in float32, so
// these are the same numbers that the plain dequantisers of common/quant compute.
//
//   kElements, kBytes      weights and bytes of a block
//   unpack(block, emit)    calls emit(i, group) for the groups of a block, i being the first weight
//
// The block structs come from common/quant; their functions must not be called here (see simd.h).

#include "../../common/quant/iq4.h"
#include "../../common/quant/legacy.h"
#include "../../common/quant/mxfp4.h"
#include "simd.h"

namespace forge::cpu::FORGE_TARGET {

FORGE_INLINE SignedBytes as_signed(Bytes bytes) { return reinterpret_cast<SignedBytes>(bytes); }

FORGE_INLINE Vec f16_set(const PackedF16& half) { return set(f16_at(half.bits.bytes)); }

template <class Block>
struct BlockFormat {
  static constexpr int kElements = Block::elements;
  static constexpr int kBytes = sizeof(Block);
  FORGE_INLINE const Block& at(const uint8_t* data) {
    return *reinterpret_cast<const Block*>(data);
  }
};

struct FormatQ8_0 : BlockFormat<BlockQ8_0> {
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    const BlockQ8_0& block = at(data);
    const Vec d = f16_set(block.d);
    for (int i = 0; i < 32; i += 16) {
      const Bytes q = load_bytes(reinterpret_cast<const uint8_t*>(block.qs) + i);
      emit(i, widen(as_signed(q)) * d);
    }
  }
};

struct FormatQ4_0 : BlockFormat<BlockQ4_0> {
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    const BlockQ4_0& block = at(data);
    const Vec d = f16_set(block.d);
    const Bytes q = load_bytes(block.qs);
    emit(0, widen(as_signed((q & 15) - 8)) * d);
    emit(16, widen(as_signed((q >> 4) - 8)) * d);
  }
};

struct FormatQ4_1 : BlockFormat<BlockQ4_1> {
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    const BlockQ4_1& block = at(data);
    const Vec d = f16_set(block.d), m = f16_set(block.m);
    const Bytes q = load_bytes(block.qs);
    emit(0, fma(widen(as_signed(q & 15)), d, m));
    emit(16, fma(widen(as_signed(q >> 4)), d, m));
  }
};

struct FormatQ5_0 : BlockFormat<BlockQ5_0> {
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    const BlockQ5_0& block = at(data);
    const Vec d = f16_set(block.d);
    const Bytes q = load_bytes(block.qs);
    const Bytes low = (q & 15) | (expand_bits(block.qh.bytes) & 16);
    const Bytes high = (q >> 4) | (expand_bits(block.qh.bytes + 2) & 16);
    emit(0, widen(as_signed(low - 16)) * d);
    emit(16, widen(as_signed(high - 16)) * d);
  }
};

struct FormatQ5_1 : BlockFormat<BlockQ5_1> {
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    const BlockQ5_1& block = at(data);
    const Vec d = f16_set(block.d), m = f16_set(block.m);
    const Bytes q = load_bytes(block.qs);
    const Bytes low = (q & 15) | (expand_bits(block.qh.bytes) & 16);
    const Bytes high = (q >> 4) | (expand_bits(block.qh.bytes + 2) & 16);
    emit(0, fma(widen(as_signed(low)), d, m));
    emit(16, fma(widen(as_signed(high)), d, m));
  }
};

// The weights of 16 bytes of fields that index a table, low halves first.
template <class Emit>
FORGE_INLINE void unpack_levels(const uint8_t* qs, const int8_t (&levels)[16], Vec scale, int first,
                                Emit emit) {
  const Bytes table = load_bytes(reinterpret_cast<const uint8_t*>(levels));
  const Bytes q = load_bytes(qs);
  emit(first, widen(as_signed(lookup(table, q & 15))) * scale);
  emit(first + 16, widen(as_signed(lookup(table, q >> 4))) * scale);
}

struct FormatIQ4_NL : BlockFormat<BlockIQ4_NL> {
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    const BlockIQ4_NL& block = at(data);
    unpack_levels(block.qs, iq4_levels, f16_set(block.d), 0, emit);
  }
};

struct FormatIQ4_XS : BlockFormat<BlockIQ4_XS> {
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    const BlockIQ4_XS& block = at(data);
    const float d = f16_at(block.d.bits.bytes);
    const int high = block.scales_h.bytes[0] | block.scales_h.bytes[1] << 8;
    FORGE_UNROLL(8)
    for (int s = 0; s < 8; ++s) {
      const int low = block.scales_l[s / 2] >> (4 * (s % 2)) & 15;
      const int scale = (low | (high >> (2 * s) & 3) << 4) - 32;
      const Vec scale_of_s = set(d * static_cast<float>(scale));
      unpack_levels(block.qs + 16 * s, iq4_levels, scale_of_s, 32 * s, emit);
    }
  }
};

struct FormatMXFP4 : BlockFormat<BlockMXFP4> {
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    const BlockMXFP4& block = at(data);
    // 2^(e - 128), as a float's bits; the two smallest are subnormal.
    const uint32_t bits = block.e < 2 ? 0x00200000u << block.e : (block.e - 1u) << 23;
    float scale;
    memcpy(&scale, &bits, 4);
    unpack_levels(block.qs, mxfp4_levels, set(scale), 0, emit);
  }
};

}  // namespace forge::cpu::FORGE_TARGET
