#pragma once

// The "K" formats as kernels read them: see formats.h.

#include "../../common/quant/k_quants.h"
#include "formats.h"

namespace forge::cpu::FORGE_TARGET {

FORGE_INLINE uint32_t load_u32(const uint8_t* at) {
  uint32_t value;
  memcpy(&value, at, 4);
  return value;
}

// The scales and minima of the 8 sub-blocks of Q4_K and Q5_K, times those of the block.
struct ScalesAndMins {
  float all[16];
  float scale(int s) const { return all[s]; }
  float min(int s) const { return all[8 + s]; }
};

FORGE_INLINE void load_scales_and_mins(const uint8_t* packed, Vec d, Vec dmin, ScalesAndMins& out) {
  const uint32_t a = load_u32(packed), b = load_u32(packed + 4), c = load_u32(packed + 8);
  const uint32_t fields[4] = {a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030),
                              b & 0x3f3f3f3f, (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030)};
  SignedBytes bytes;
  memcpy(&bytes, fields, 16);
  store(out.all, scale_halves(widen(bytes), d, dmin));
}

struct FormatQ4_K : BlockFormat<BlockQ4_K> {
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    const BlockQ4_K& block = at(data);
    ScalesAndMins by;
    load_scales_and_mins(block.scales, f16_set(block.d), f16_set(block.dmin), by);
    FORGE_UNROLL(4)
    for (int s = 0; s < 8; s += 2) {
      const Bytes q0 = load_bytes(block.qs + 16 * s), q1 = load_bytes(block.qs + 16 * s + 16);
      const Vec low = set(by.scale(s)), low_min = set(-by.min(s));
      emit(32 * s, fma(widen(as_signed(q0 & 15)), low, low_min));
      emit(32 * s + 16, fma(widen(as_signed(q1 & 15)), low, low_min));
      const Vec high = set(by.scale(s + 1)), high_min = set(-by.min(s + 1));
      emit(32 * s + 32, fma(widen(as_signed(q0 >> 4)), high, high_min));
      emit(32 * s + 48, fma(widen(as_signed(q1 >> 4)), high, high_min));
    }
  }
};

struct FormatQ5_K : BlockFormat<BlockQ5_K> {
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    const BlockQ5_K& block = at(data);
    ScalesAndMins by;
    load_scales_and_mins(block.scales, f16_set(block.d), f16_set(block.dmin), by);
    const Bytes h[2] = {load_bytes(block.qh), load_bytes(block.qh + 16)};
    FORGE_UNROLL(8)
    for (int s = 0; s < 8; ++s) {
      const Vec scale = set(by.scale(s)), min = set(-by.min(s));
      for (int half = 0; half < 2; ++half) {
        const Bytes q = load_bytes(block.qs + 32 * (s / 2) + 16 * half);
        const Bytes field = (s % 2 == 0 ? q & 15 : q >> 4) | (h[half] >> s & 1) << 4;
        emit(32 * s + 16 * half, fma(widen(as_signed(field)), scale, min));
      }
    }
  }
};

struct FormatQ6_K : BlockFormat<BlockQ6_K> {
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    const BlockQ6_K& block = at(data);
    float scale[16];
    const Bytes scales = load_bytes(reinterpret_cast<const uint8_t*>(block.scales));
    store(scale, widen(as_signed(scales)) * f16_set(block.d));
    FORGE_UNROLL(16)
    for (int s = 0; s < 16; ++s) {
      const Bytes low = load_bytes(block.ql + 64 * (s / 8) + 16 * (s % 4));
      const Bytes high = load_bytes(block.qh + 32 * (s / 8) + 16 * (s % 2));
      const Bytes field =
          (s / 4 % 2 == 0 ? low & 15 : low >> 4) | (high >> (2 * (s / 2 % 4)) & 3) << 4;
      emit(16 * s, widen(as_signed(field - 32)) * set(scale[s]));
    }
  }
};

// The two-bit fields of sub-block s of Q2_K and Q3_K.
FORGE_INLINE Bytes two_bit_fields(const uint8_t* qs, int s) {
  return load_bytes(qs + 32 * (s / 8) + 16 * (s % 2)) >> (2 * (s / 2 % 4)) & 3;
}

struct FormatQ2_K : BlockFormat<BlockQ2_K> {
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    const BlockQ2_K& block = at(data);
    const Bytes packed = load_bytes(block.scales);
    float scale[16], min[16];
    store(scale, widen(as_signed(packed & 15)) * f16_set(block.d));
    store(min, widen(as_signed(packed >> 4)) * f16_set(block.dmin));
    FORGE_UNROLL(16)
    for (int s = 0; s < 16; ++s) {
      const Bytes field = two_bit_fields(block.qs, s);
      emit(16 * s, fma(widen(as_signed(field)), set(scale[s]), set(-min[s])));
    }
  }
};

struct FormatQ3_K : BlockFormat<BlockQ3_K> {
  template <class Emit>
  FORGE_INLINE void unpack(const uint8_t* data, Emit emit) {
    const BlockQ3_K& block = at(data);
    const uint32_t a = load_u32(block.scales), b = load_u32(block.scales + 4),
                   c = load_u32(block.scales + 8);
    const uint32_t fields[4] = {(a & 0x0f0f0f0f) | (c << 4 & 0x30303030),
                                (b & 0x0f0f0f0f) | (c << 2 & 0x30303030),
                                (a >> 4 & 0x0f0f0f0f) | (c & 0x30303030),
                                (b >> 4 & 0x0f0f0f0f) | (c >> 2 & 0x30303030)};
    Bytes packed;
    memcpy(&packed, fields, 16);
    float scale[16];
    store(scale, widen(as_signed(packed - 32)) * f16_set(block.d));
    FORGE_UNROLL(16)
    for (int s = 0; s < 16; ++s) {
      const Bytes high = load_bytes(block.hmask + 16 * (s % 2)) >> (s / 2) & 1;
      const Bytes field = (two_bit_fields(block.qs, s) | high << 2) - 4;
      emit(16 * s, widen(as_signed(field)) * set(scale[s]));
    }
  }
};

}  // namespace forge::cpu::FORGE_TARGET
