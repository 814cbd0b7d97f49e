#pragma once

// Vectors of 4 floats in NEON registers, which every aarch64 processor has. See simd.h.

#include <arm_neon.h>

namespace forge::cpu::FORGE_TARGET {

struct Vec {
  float32x4_t v;
};
using Mask = uint32x4_t;
constexpr int kLanes = 4;
constexpr int kTileTokens = 6;  // 24 accumulators, 4 weights and an activation of 32 registers
// Tokens by panels whose sums fit the registers: see int8_tile.h and float_products.cpp.
constexpr int kDirectTokens = 3;
#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr int kTileTokensInt8 = 6, kTilePanelsInt8 = 1;  // see int8_matrix_tile.h
#else
constexpr int kTileTokensInt8 = 3, kTilePanelsInt8 = 1;
#endif
constexpr int kDirectTokensFloat = 2;
constexpr int kTileTokensFloat = 6, kTilePanelsFloat = 1;

FORGE_INLINE Vec load(const float* at) { return {vld1q_f32(at)}; }
FORGE_INLINE Vec load_n(const float* at, int n) {
  float lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = at[i];
  return load(lanes);
}
FORGE_INLINE void store(float* at, Vec a) { vst1q_f32(at, a.v); }
FORGE_INLINE void store_n(float* at, Vec a, int n) {
  float lanes[kLanes];
  store(lanes, a);
  for (int i = 0; i < n; ++i) at[i] = lanes[i];
}
FORGE_INLINE Vec set(float x) { return {vdupq_n_f32(x)}; }
FORGE_INLINE Vec zero() { return set(0); }

FORGE_INLINE Vec operator+(Vec a, Vec b) { return {vaddq_f32(a.v, b.v)}; }
FORGE_INLINE Vec operator-(Vec a, Vec b) { return {vsubq_f32(a.v, b.v)}; }
FORGE_INLINE Vec operator*(Vec a, Vec b) { return {vmulq_f32(a.v, b.v)}; }
FORGE_INLINE Vec operator/(Vec a, Vec b) { return {vdivq_f32(a.v, b.v)}; }
FORGE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
FORGE_INLINE Mask less(Vec a, Vec b) { return vcltq_f32(a.v, b.v); }
FORGE_INLINE Vec select(Mask m, Vec a, Vec b) { return {vbslq_f32(m, a.v, b.v)}; }
// If an operand is NaN, the result is b.
FORGE_INLINE Vec min(Vec a, Vec b) { return select(less(a, b), a, b); }
FORGE_INLINE Vec max(Vec a, Vec b) { return select(less(b, a), a, b); }
FORGE_INLINE Vec round(Vec a) { return {vrndnq_f32(a.v)}; }

FORGE_INLINE Vec power2(int32x4_t n) {
  return {vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23))};
}
// In two steps, because 2^n itself may lie outside float's range.
FORGE_INLINE Vec scale2(Vec x, Vec n) {
  const int32x4_t whole = vcvtq_s32_f32(n.v);
  const int32x4_t half = vshrq_n_s32(whole, 1);
  return x * power2(half) * power2(vsubq_s32(whole, half));
}

FORGE_INLINE float sum(Vec a) { return vaddvq_f32(a.v); }
FORGE_INLINE float largest(Vec a) { return vmaxvq_f32(a.v); }

template <class Op>
FORGE_INLINE Four across(const Vec (&a)[4]) {
  const auto pair = [](Vec x, Vec y) {
    return Op::of({vzip1q_f32(x.v, y.v)}, {vzip2q_f32(x.v, y.v)});
  };
  const Vec low = pair(a[0], a[1]), high = pair(a[2], a[3]);
  const Vec one = Op::of({vcombine_f32(vget_low_f32(low.v), vget_low_f32(high.v))},
                         {vcombine_f32(vget_high_f32(low.v), vget_high_f32(high.v))});
  return reinterpret_cast<Four>(one.v);
}

FORGE_INLINE Vec join(const Four (&parts)[1]) {
  return {reinterpret_cast<float32x4_t>(parts[0])};
}

FORGE_INLINE Vec load_f16(const uint8_t* at) {
  return {vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at)))};
}
FORGE_INLINE Vec load_bf16(const uint8_t* at) {
  return {vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(at)), 16))};
}
FORGE_INLINE Vec load_e4m3(const uint8_t* at) {
  uint32_t codes;
  memcpy(&codes, at, 4);
  const int8x8_t bytes = vreinterpret_s8_u32(vdup_n_u32(codes));
  const uint16x4_t wide = vreinterpret_u16_s16(vshl_n_s16(vget_low_s16(vmovl_s8(bytes)), 7));
  return {vcvt_f32_f16(vreinterpret_f16_u16(vand_u16(wide, vdup_n_u16(0xbf80))))};
}
FORGE_INLINE void store_f16(uint8_t* at, Vec a) {
  vst1_u8(at, vreinterpret_u8_f16(vcvt_f16_f32(a.v)));
}
FORGE_INLINE float f16_at(const uint8_t* at) {
  __fp16 half;
  memcpy(&half, at, 2);
  return half;
}

// Bytes kLanes part to kLanes part + kLanes - 1 as floats.
template <int part>
FORGE_INLINE Vec widen_part(SignedBytes bytes) {
  const auto all = reinterpret_cast<int8x16_t>(bytes);
  const int16x8_t half = vmovl_s8(part < 2 ? vget_low_s8(all) : vget_high_s8(all));
  const int32x4_t lanes = vmovl_s16(part % 2 == 0 ? vget_low_s16(half) : vget_high_s16(half));
  return {vcvtq_f32_s32(lanes)};
}

// Byte i is 0xff where bit i is set, else 0.
FORGE_INLINE Bytes expand_bits(const uint8_t* two_bytes) {
  const Bytes bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint64_t ones = 0x0101010101010101u;
  const uint64_t words[2] = {two_bytes[0] * ones, two_bytes[1] * ones};
  Bytes bytes;
  memcpy(&bytes, words, 16);
  return reinterpret_cast<Bytes>((bytes & bit) == bit);
}

}  // namespace forge::cpu::FORGE_TARGET
