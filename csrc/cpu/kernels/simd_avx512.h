#pragma once

// Vectors of 16 floats in AVX-512 registers. See simd.h.

// GCC 12 takes the "undefined" operands of its own intrinsics for uninitialised variables.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

namespace forge::cpu::FORGE_TARGET {

struct Vec {
  __m512 v;
};
using Mask = __mmask16;
constexpr int kLanes = 16;
constexpr int kTileTokens = 6;  // 24 accumulators, 4 weights and an activation of 32 registers
// Tokens by panels whose sums fit the registers: see int8_tile.h and float_products.cpp.
constexpr int kDirectTokens = 8;
#if defined(__AMX_INT8__)
constexpr int kTileTokensInt8 = 16, kTilePanelsInt8 = 2;  // see amx_tiles.h
#else
constexpr int kTileTokensInt8 = 6, kTilePanelsInt8 = 2;
#endif
constexpr int kDirectTokensFloat = 8;
constexpr int kTileTokensFloat = 6, kTilePanelsFloat = 4;

FORGE_INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }

FORGE_INLINE Vec load(const float* at) { return {_mm512_loadu_ps(at)}; }
FORGE_INLINE Vec load_n(const float* at, int n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), at)};
}
FORGE_INLINE void store(float* at, Vec a) { _mm512_storeu_ps(at, a.v); }
FORGE_INLINE void store_n(float* at, Vec a, int n) {
  _mm512_mask_storeu_ps(at, first_lanes(n), a.v);
}
FORGE_INLINE Vec set(float x) { return {_mm512_set1_ps(x)}; }
FORGE_INLINE Vec zero() { return {_mm512_setzero_ps()}; }

FORGE_INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
FORGE_INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
FORGE_INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
FORGE_INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
FORGE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// If an operand is NaN, the result is b.
FORGE_INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
FORGE_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
FORGE_INLINE Vec round(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
FORGE_INLINE Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
FORGE_INLINE Vec select(Mask m, Vec a, Vec b) { return {_mm512_mask_blend_ps(m, b.v, a.v)}; }
FORGE_INLINE Vec scale2(Vec x, Vec n) { return {_mm512_scalef_ps(x.v, n.v)}; }

FORGE_INLINE float sum(Vec a) {
  const __m256 halves = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
  quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}

FORGE_INLINE float largest(Vec a) { return _mm512_reduce_max_ps(a.v); }

template <class Op>
FORGE_INLINE Four across(const Vec (&a)[4]) {
  const auto pair = [](Vec x, Vec y) {
    return Op::of({_mm512_unpacklo_ps(x.v, y.v)}, {_mm512_unpackhi_ps(x.v, y.v)});
  };
  const Vec low = pair(a[0], a[1]), high = pair(a[2], a[3]);
  // Quarters of four sums each.
  const Vec all = Op::of({_mm512_shuffle_ps(low.v, high.v, 0x44)},
                         {_mm512_shuffle_ps(low.v, high.v, 0xee)});
  const Vec half = Op::of(all, {_mm512_shuffle_f32x4(all.v, all.v, 0x4e)});
  const Vec one = Op::of(half, {_mm512_shuffle_f32x4(half.v, half.v, 0xb1)});
  return _mm512_castps512_ps128(one.v);
}

FORGE_INLINE Vec join(const Four (&parts)[4]) {
  __m512 out = _mm512_castps128_ps512(parts[0]);
  out = _mm512_insertf32x4(out, parts[1], 1);
  out = _mm512_insertf32x4(out, parts[2], 2);
  return {_mm512_insertf32x4(out, parts[3], 3)};
}

FORGE_INLINE Vec load_f16(const uint8_t* at) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)))};
}
FORGE_INLINE Vec load_bf16(const uint8_t* at) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
FORGE_INLINE Vec load_e4m3(const uint8_t* at) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  const __m256i mask = _mm256_set1_epi16(static_cast<int16_t>(0xbf80));
  return {_mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(wide, 7), mask))};
}
FORGE_INLINE void store_f16(uint8_t* at, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
FORGE_INLINE float f16_at(const uint8_t* at) {
  uint16_t half;
  memcpy(&half, at, 2);
  return _cvtsh_ss(half);
}

// Bytes kLanes part to kLanes part + kLanes - 1 as floats.
template <int part>
FORGE_INLINE Vec widen_part(SignedBytes bytes) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(reinterpret_cast<__m128i>(bytes)))};
}

// Byte i is 0xff where bit i is set, else 0.
FORGE_INLINE Bytes expand_bits(const uint8_t* two_bytes) {
  uint16_t bits;
  memcpy(&bits, two_bytes, 2);
  return reinterpret_cast<Bytes>(_mm_movm_epi8(bits));
}

}  // namespace forge::cpu::FORGE_TARGET
