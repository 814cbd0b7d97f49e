#pragma once

// Vectors of 4 floats in the compiler's own vector type, for processors without another
// implementation. fma is not fused. See simd.h.

namespace forge::cpu::FORGE_TARGET {

typedef float Floats __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(16)));

struct Vec {
  Floats v;
};
using Mask = Ints;
constexpr int kLanes = 4;
constexpr int kTileTokens = 2;
// Tokens by panels whose sums fit the registers: see int8_tile.h and float_products.cpp.
constexpr int kDirectTokens = 2;
constexpr int kTileTokensInt8 = 2, kTilePanelsInt8 = 1;
constexpr int kDirectTokensFloat = 2;
constexpr int kTileTokensFloat = 2, kTilePanelsFloat = 1;

FORGE_INLINE Vec load(const float* at) {
  Vec a;
  memcpy(&a, at, sizeof a);
  return a;
}
FORGE_INLINE Vec load_n(const float* at, int n) {
  float lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = at[i];
  return load(lanes);
}
FORGE_INLINE void store(float* at, Vec a) { memcpy(at, &a, sizeof a); }
FORGE_INLINE void store_n(float* at, Vec a, int n) {
  for (int i = 0; i < n; ++i) at[i] = a.v[i];
}
FORGE_INLINE Vec set(float x) { return {Floats{x, x, x, x}}; }
FORGE_INLINE Vec zero() { return set(0); }

FORGE_INLINE Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
FORGE_INLINE Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
FORGE_INLINE Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
FORGE_INLINE Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
FORGE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
FORGE_INLINE Mask less(Vec a, Vec b) { return a.v < b.v; }
FORGE_INLINE Vec select(Mask m, Vec a, Vec b) {
  return {reinterpret_cast<Floats>((m & reinterpret_cast<Ints>(a.v)) |
                                   (~m & reinterpret_cast<Ints>(b.v)))};
}
// If an operand is NaN, the result is b.
FORGE_INLINE Vec min(Vec a, Vec b) { return select(less(a, b), a, b); }
FORGE_INLINE Vec max(Vec a, Vec b) { return select(less(b, a), a, b); }
// To even, for |a| < 2^22: adding 1.5 2^23 leaves no fraction bits.
FORGE_INLINE Vec round(Vec a) {
  const Vec shift = set(12582912.0f);
  return a + shift - shift;
}

FORGE_INLINE Vec power2(Ints n) { return {reinterpret_cast<Floats>((n + 127) << 23)}; }
// In two steps, because 2^n itself may lie outside float's range.
FORGE_INLINE Vec scale2(Vec x, Vec n) {
  const Ints whole = __builtin_convertvector(n.v, Ints);
  const Ints half = whole >> 1;
  return x * power2(half) * power2(whole - half);
}

FORGE_INLINE float sum(Vec a) { return (a.v[0] + a.v[1]) + (a.v[2] + a.v[3]); }
FORGE_INLINE float largest(Vec a) {
  float most = a.v[0];
  for (int i = 1; i < kLanes; ++i) most = most < a.v[i] ? a.v[i] : most;
  return most;
}

template <class Op>
FORGE_INLINE Four across(const Vec (&a)[4]) {
  const auto pair = [](Vec x, Vec y) {
    return Op::of({__builtin_shufflevector(x.v, y.v, 0, 4, 1, 5)},
                  {__builtin_shufflevector(x.v, y.v, 2, 6, 3, 7)});
  };
  const Vec low = pair(a[0], a[1]), high = pair(a[2], a[3]);
  return Op::of({__builtin_shufflevector(low.v, high.v, 0, 1, 4, 5)},
                {__builtin_shufflevector(low.v, high.v, 2, 3, 6, 7)}).v;
}

FORGE_INLINE Vec join(const Four (&parts)[1]) { return {parts[0]}; }

// Shifted into place, an f16 is a float whose exponent is 112 too small; subnormals included.
FORGE_INLINE Vec widen_f16(Ints half) {
  const Ints magnitude = (half & 0x7fff) << 13;
  const Floats scaled = reinterpret_cast<Floats>(magnitude) * 0x1p112f;
  const Ints special = ((half & 0x7c00) == 0x7c00) & (magnitude | 0x7f800000);
  return {reinterpret_cast<Floats>(reinterpret_cast<Ints>(scaled) | special |
                                   (half & 0x8000) << 16)};
}

FORGE_INLINE Ints load_u16(const uint8_t* at) {
  uint16_t u[kLanes];
  memcpy(u, at, sizeof u);
  return Ints{u[0], u[1], u[2], u[3]};
}
FORGE_INLINE Vec load_f16(const uint8_t* at) { return widen_f16(load_u16(at)); }
FORGE_INLINE Vec load_e4m3(const uint8_t* at) {
  const Ints code = {at[0], at[1], at[2], at[3]};
  return widen_f16((code & 0x80) << 8 | (code & 0x7f) << 7);
}
FORGE_INLINE Vec load_bf16(const uint8_t* at) {
  return {reinterpret_cast<Floats>(load_u16(at) << 16)};
}

// Rounds to nearest, ties to even. Below the normal range an addition rounds to multiples of 2^-24;
// above it an integer addition rounds the 13 bits that fall away.
FORGE_INLINE uint16_t narrow_f16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  const uint32_t sign = bits >> 16 & 0x8000;
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) {
    float shifted;
    memcpy(&shifted, &magnitude, 4);
    shifted += 0.5f;
    memcpy(&magnitude, &shifted, 4);
    return static_cast<uint16_t>(sign | (magnitude - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23);
  return static_cast<uint16_t>(sign | rounded >> 13);
}
FORGE_INLINE void store_f16(uint8_t* at, Vec a) {
  uint16_t half[kLanes];
  for (int i = 0; i < kLanes; ++i) half[i] = narrow_f16(a.v[i]);
  memcpy(at, half, sizeof half);
}
FORGE_INLINE float f16_at(const uint8_t* at) {
  uint16_t half;
  memcpy(&half, at, 2);
  return widen_f16(Ints{half, 0, 0, 0}).v[0];
}

// Bytes kLanes part to kLanes part + kLanes - 1 as floats.
template <int part>
FORGE_INLINE Vec widen_part(SignedBytes bytes) {
  const Ints lanes = {bytes[4 * part], bytes[4 * part + 1], bytes[4 * part + 2],
                      bytes[4 * part + 3]};
  return {__builtin_convertvector(lanes, Floats)};
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
