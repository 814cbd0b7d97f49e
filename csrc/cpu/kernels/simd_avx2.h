#pragma once

// Vectors of 8 floats in AVX2 registers, with FMA and F16C. See simd.h.

#include <immintrin.h>

namespace forge::cpu::FORGE_TARGET {

struct Vec {
  __m256 v;
};
using Mask = __m256;
constexpr int kLanes = 8;
constexpr int kTileTokens = 3;  // 12 accumulators, 3 activations and a weight of 16 registers
// Tokens by panels whose sums fit the registers: see int8_tile.h and float_products.cpp.
constexpr int kDirectTokens = 4;
constexpr int kTileTokensInt8 = 4, kTilePanelsInt8 = 1;
constexpr int kDirectTokensFloat = 2;
constexpr int kTileTokensFloat = 6, kTilePanelsFloat = 1;

FORGE_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

FORGE_INLINE Vec load(const float* at) { return {_mm256_loadu_ps(at)}; }
FORGE_INLINE Vec load_n(const float* at, int n) {
  return {_mm256_maskload_ps(at, first_lanes(n))};
}
FORGE_INLINE void store(float* at, Vec a) { _mm256_storeu_ps(at, a.v); }
FORGE_INLINE void store_n(float* at, Vec a, int n) {
  _mm256_maskstore_ps(at, first_lanes(n), a.v);
}
FORGE_INLINE Vec set(float x) { return {_mm256_set1_ps(x)}; }
FORGE_INLINE Vec zero() { return {_mm256_setzero_ps()}; }

FORGE_INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
FORGE_INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
FORGE_INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
FORGE_INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
FORGE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
// If an operand is NaN, the result is b.
FORGE_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
FORGE_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
FORGE_INLINE Vec round(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
FORGE_INLINE Mask less(Vec a, Vec b) { return _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ); }
FORGE_INLINE Vec select(Mask m, Vec a, Vec b) { return {_mm256_blendv_ps(b.v, a.v, m)}; }

FORGE_INLINE Vec power2(__m256i n) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23))};
}
// In two steps, because 2^n itself may lie outside float's range.
FORGE_INLINE Vec scale2(Vec x, Vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n.v);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  return x * power2(half) * power2(_mm256_sub_epi32(whole, half));
}

FORGE_INLINE float sum(Vec a) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

FORGE_INLINE float largest(Vec a) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

template <class Op>
FORGE_INLINE Four across(const Vec (&a)[4]) {
  const auto pair = [](Vec x, Vec y) {
    return Op::of({_mm256_unpacklo_ps(x.v, y.v)}, {_mm256_unpackhi_ps(x.v, y.v)});
  };
  const Vec low = pair(a[0], a[1]), high = pair(a[2], a[3]);
  const Vec all = Op::of({_mm256_shuffle_ps(low.v, high.v, 0x44)},
                         {_mm256_shuffle_ps(low.v, high.v, 0xee)});
  const Vec one = Op::of(all, {_mm256_permute2f128_ps(all.v, all.v, 1)});
  return _mm256_castps256_ps128(one.v);
}

FORGE_INLINE Vec join(const Four (&parts)[2]) { return {_mm256_set_m128(parts[1], parts[0])}; }

FORGE_INLINE Vec load_f16(const uint8_t* at) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)))};
}
FORGE_INLINE Vec load_bf16(const uint8_t* at) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
}
FORGE_INLINE Vec load_e4m3(const uint8_t* at) {
  const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  const __m128i mask = _mm_set1_epi16(static_cast<int16_t>(0xbf80));
  return {_mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(wide, 7), mask))};
}
FORGE_INLINE void store_f16(uint8_t* at, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at),
                   _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
FORGE_INLINE float f16_at(const uint8_t* at) {
  uint16_t half;
  memcpy(&half, at, 2);
  return _cvtsh_ss(half);
}

// Bytes kLanes part to kLanes part + kLanes - 1 as floats.
template <int part>
FORGE_INLINE Vec widen_part(SignedBytes bytes) {
  const __m128i at = _mm_bsrli_si128(reinterpret_cast<__m128i>(bytes), 8 * part);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(at))};
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
