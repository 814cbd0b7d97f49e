#pragma once

// Vectors of bytes and their dot products, in registers as wide as those of Vec. See simd.h.
//
//   ByteVec, IntVec     4 kLanes bytes; kLanes 32-bit integers, one for every 4 bytes
//   Dots<most>          sums of 4 products a lane, of unsigned bytes up to `most` and signed bytes
//                       above -128:
//     begin(start)        begins with these sums
//     add<i, count>(a, b) adds the i-th of `count` vectors of products
//     sums()              after the last of them
//   kDotBias<most>      subtracted by Dots from its unsigned bytes, where the processor cannot
//                       multiply unsigned bytes up to `most` by signed bytes
//   load_lanes          16 bytes from each of several addresses
//   interleave_low, interleave_high<size>
//                       elements of `size` bytes of two vectors alternately, from the first or
//                       second half of every 16 bytes
//   lookup              bytes of a table of 16; every index is below 16

namespace forge::cpu::FORGE_TARGET {

typedef uint8_t ByteVec __attribute__((vector_size(4 * kLanes)));
typedef uint16_t ShortVec __attribute__((vector_size(4 * kLanes)));
typedef int16_t SignedShortVec __attribute__((vector_size(4 * kLanes)));
typedef uint32_t WordVec __attribute__((vector_size(4 * kLanes)));
typedef int32_t IntVec __attribute__((vector_size(4 * kLanes)));
typedef float FloatVec __attribute__((vector_size(4 * kLanes)));

FORGE_INLINE ByteVec load_vec(const uint8_t* at) {
  ByteVec bytes;
  memcpy(&bytes, at, sizeof bytes);
  return bytes;
}

// The same 4 bytes in every lane.
FORGE_INLINE ByteVec splat4(const int8_t* four) {
  uint32_t word;
  memcpy(&word, four, 4);
  return reinterpret_cast<ByteVec>(WordVec{} + word);
}

FORGE_INLINE IntVec splat(int32_t value) { return IntVec{} + value; }

FORGE_INLINE Vec to_floats(IntVec a) {
  Vec out;
  const FloatVec floats = __builtin_convertvector(a, FloatVec);
  memcpy(&out, &floats, sizeof out);
  return out;
}

FORGE_INLINE IntVec to_ints(Vec a) {
  FloatVec floats;
  memcpy(&floats, &a, sizeof floats);
  return __builtin_convertvector(floats, IntVec);
}

// `bits` bits of each byte, from bit `from` on, moved to bit `to`; no bit may leave its byte.
template <int bits, int from, int to>
FORGE_INLINE ByteVec field(ByteVec bytes) {
  constexpr uint8_t mask = ((1 << bits) - 1) << to;
  const ShortVec shorts = reinterpret_cast<ShortVec>(bytes);
  if constexpr (from >= to) return reinterpret_cast<ByteVec>(shorts >> (from - to)) & mask;
  return reinterpret_cast<ByteVec>(shorts << (to - from)) & mask;
}

// ---- rearranging ----------------------------------------------------------------------------

#if defined(__AVX512F__)

FORGE_INLINE ByteVec load_lanes(const uint8_t* const (&at)[4]) {
  const auto lane = [&](int i) { return reinterpret_cast<__m128i>(load_bytes(at[i])); };
  __m512i out = _mm512_castsi128_si512(lane(0));
  out = _mm512_inserti32x4(out, lane(1), 1);
  out = _mm512_inserti32x4(out, lane(2), 2);
  return reinterpret_cast<ByteVec>(_mm512_inserti32x4(out, lane(3), 3));
}

template <int size>
FORGE_INLINE ByteVec interleave_low(ByteVec a, ByteVec b) {
  const auto x = reinterpret_cast<__m512i>(a), y = reinterpret_cast<__m512i>(b);
  return reinterpret_cast<ByteVec>(size == 2 ? _mm512_unpacklo_epi16(x, y)
                                             : _mm512_unpacklo_epi32(x, y));
}
template <int size>
FORGE_INLINE ByteVec interleave_high(ByteVec a, ByteVec b) {
  const auto x = reinterpret_cast<__m512i>(a), y = reinterpret_cast<__m512i>(b);
  return reinterpret_cast<ByteVec>(size == 2 ? _mm512_unpackhi_epi16(x, y)
                                             : _mm512_unpackhi_epi32(x, y));
}

#elif defined(__AVX2__)

FORGE_INLINE ByteVec load_lanes(const uint8_t* const (&at)[2]) {
  return reinterpret_cast<ByteVec>(_mm256_set_m128i(reinterpret_cast<__m128i>(load_bytes(at[1])),
                                                    reinterpret_cast<__m128i>(load_bytes(at[0]))));
}

template <int size>
FORGE_INLINE ByteVec interleave_low(ByteVec a, ByteVec b) {
  const auto x = reinterpret_cast<__m256i>(a), y = reinterpret_cast<__m256i>(b);
  return reinterpret_cast<ByteVec>(size == 2 ? _mm256_unpacklo_epi16(x, y)
                                             : _mm256_unpacklo_epi32(x, y));
}
template <int size>
FORGE_INLINE ByteVec interleave_high(ByteVec a, ByteVec b) {
  const auto x = reinterpret_cast<__m256i>(a), y = reinterpret_cast<__m256i>(b);
  return reinterpret_cast<ByteVec>(size == 2 ? _mm256_unpackhi_epi16(x, y)
                                             : _mm256_unpackhi_epi32(x, y));
}

#else

FORGE_INLINE ByteVec load_lanes(const uint8_t* const (&at)[1]) { return load_vec(at[0]); }

template <int size>
FORGE_INLINE ByteVec interleave_low(ByteVec a, ByteVec b) {
  const auto x = reinterpret_cast<ShortVec>(a), y = reinterpret_cast<ShortVec>(b);
  const auto u = reinterpret_cast<WordVec>(a), v = reinterpret_cast<WordVec>(b);
  if constexpr (size == 4) {
    return reinterpret_cast<ByteVec>(__builtin_shufflevector(u, v, 0, 4, 1, 5));
  } else {
    return reinterpret_cast<ByteVec>(__builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11));
  }
}
template <int size>
FORGE_INLINE ByteVec interleave_high(ByteVec a, ByteVec b) {
  const auto x = reinterpret_cast<ShortVec>(a), y = reinterpret_cast<ShortVec>(b);
  const auto u = reinterpret_cast<WordVec>(a), v = reinterpret_cast<WordVec>(b);
  if constexpr (size == 4) {
    return reinterpret_cast<ByteVec>(__builtin_shufflevector(u, v, 2, 6, 3, 7));
  } else {
    return reinterpret_cast<ByteVec>(__builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15));
  }
}

#endif

// ---- dot products ---------------------------------------------------------------------------

#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)

template <int most>
constexpr int kDotBias = most > 128 ? 128 : 0;

// The instructions of AVX2 and AVX-512 that multiply bytes without VNNI.
#if defined(__AVX512F__)
using DotVec = __m512i;
FORGE_INLINE DotVec multiply_bytes(DotVec u, DotVec s) { return _mm512_maddubs_epi16(u, s); }
FORGE_INLINE DotVec add_shorts(DotVec a, DotVec b) { return _mm512_add_epi16(a, b); }
FORGE_INLINE DotVec add_words(DotVec a, DotVec b) { return _mm512_add_epi32(a, b); }
FORGE_INLINE DotVec add_pairs(DotVec a) { return _mm512_madd_epi16(a, _mm512_set1_epi16(1)); }
// Products of signed bytes above -128 with bytes.
FORGE_INLINE DotVec multiply_signed(DotVec w, DotVec s) {
  const DotVec negated = _mm512_mask_sub_epi8(s, _mm512_movepi8_mask(w), DotVec{}, s);
  return multiply_bytes(_mm512_abs_epi8(w), negated);
}
FORGE_INLINE DotVec flip_signs(DotVec u) { return _mm512_xor_si512(u, _mm512_set1_epi8(-128)); }
#else
using DotVec = __m256i;
FORGE_INLINE DotVec multiply_bytes(DotVec u, DotVec s) { return _mm256_maddubs_epi16(u, s); }
FORGE_INLINE DotVec add_shorts(DotVec a, DotVec b) { return _mm256_add_epi16(a, b); }
FORGE_INLINE DotVec add_words(DotVec a, DotVec b) { return _mm256_add_epi32(a, b); }
FORGE_INLINE DotVec add_pairs(DotVec a) { return _mm256_madd_epi16(a, _mm256_set1_epi16(1)); }
FORGE_INLINE DotVec multiply_signed(DotVec w, DotVec s) {
  return multiply_bytes(_mm256_abs_epi8(w), _mm256_sign_epi8(s, w));
}
FORGE_INLINE DotVec flip_signs(DotVec u) { return _mm256_xor_si256(u, _mm256_set1_epi8(-128)); }
#endif

// Sums of two products fit 16 bits: one sum for bytes up to 128, several for smaller bytes, which
// are added before they are widened.
template <int most>
class Dots {
 public:
  FORGE_ALWAYS_INLINE void begin(IntVec start) { sums_ = reinterpret_cast<DotVec>(start); }
  template <int i, int count>
  FORGE_ALWAYS_INLINE void add(ByteVec a, ByteVec b) {
    const auto u = reinterpret_cast<DotVec>(a), s = reinterpret_cast<DotVec>(b);
    const DotVec pairs =
        kDotBias<most> == 0 ? multiply_bytes(u, s) : multiply_signed(flip_signs(u), s);
    pairs_ = i % kTogether == 0 ? pairs : add_shorts(pairs_, pairs);
    keep_here(pairs_);
    if constexpr (i % kTogether == kTogether - 1 || i == count - 1) {
      sums_ = add_words(sums_, add_pairs(pairs_));
      keep_here(sums_);
    }
  }
  FORGE_ALWAYS_INLINE IntVec sums() const { return reinterpret_cast<IntVec>(sums_); }

 private:
  static constexpr int kTogether = 32767 / (2 * (most > 128 ? 128 : most) * 127);
  // Without it gcc adds all products after the last one, and has too few registers to hold them.
  static FORGE_ALWAYS_INLINE void keep_here(DotVec& sums) { asm("" : "+v"(sums)); }
  DotVec sums_, pairs_;
};

#else

#if defined(__AVX512VNNI__)

template <int most>
constexpr int kDotBias = 0;

FORGE_INLINE IntVec dot(IntVec sums, ByteVec a, ByteVec b) {
  return reinterpret_cast<IntVec>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sums),
                                                      reinterpret_cast<__m512i>(a),
                                                      reinterpret_cast<__m512i>(b)));
}

#elif defined(__AVXVNNI__)

template <int most>
constexpr int kDotBias = 0;

FORGE_INLINE IntVec dot(IntVec sums, ByteVec a, ByteVec b) {
  return reinterpret_cast<IntVec>(_mm256_dpbusd_avx_epi32(reinterpret_cast<__m256i>(sums),
                                                          reinterpret_cast<__m256i>(a),
                                                          reinterpret_cast<__m256i>(b)));
}

#elif defined(__ARM_FEATURE_MATMUL_INT8)

template <int most>
constexpr int kDotBias = 0;

FORGE_INLINE IntVec dot(IntVec sums, ByteVec a, ByteVec b) {
  return reinterpret_cast<IntVec>(vusdotq_s32(reinterpret_cast<int32x4_t>(sums),
                                              reinterpret_cast<uint8x16_t>(a),
                                              reinterpret_cast<int8x16_t>(b)));
}

#elif defined(__ARM_FEATURE_DOTPROD)

template <int most>
constexpr int kDotBias = most > 127 ? 128 : 0;

FORGE_INLINE IntVec dot(IntVec sums, ByteVec a, ByteVec b) {
  return reinterpret_cast<IntVec>(vdotq_s32(reinterpret_cast<int32x4_t>(sums),
                                            reinterpret_cast<int8x16_t>(a),
                                            reinterpret_cast<int8x16_t>(b)));
}

#else

template <int most>
constexpr int kDotBias = 0;

// The products of even and of odd bytes fit 16 bits: 255 * 127 < 2^15.
FORGE_INLINE IntVec dot(IntVec sums, ByteVec a, ByteVec b) {
  const auto u = reinterpret_cast<SignedShortVec>(a), s = reinterpret_cast<SignedShortVec>(b);
  const auto even = reinterpret_cast<IntVec>((u & 0xff) * (s << 8 >> 8));
  const auto odd = reinterpret_cast<IntVec>((u >> 8 & 0xff) * (s >> 8));
  return sums + ((even << 16 >> 16) + (even >> 16)) + ((odd << 16 >> 16) + (odd >> 16));
}

#endif

template <int most>
class Dots {
 public:
  FORGE_ALWAYS_INLINE void begin(IntVec start) { sums_ = start; }
  template <int, int>
  FORGE_ALWAYS_INLINE void add(ByteVec a, ByteVec b) {
    // A bias of 128 turns unsigned bytes into signed ones.
    if constexpr (kDotBias<most> != 0) a ^= 128;
    sums_ = dot(sums_, a, b);
  }
  FORGE_ALWAYS_INLINE IntVec sums() const { return sums_; }

 private:
  IntVec sums_;
};

#endif

// ---- tables ---------------------------------------------------------------------------------

#if defined(__AVX512F__)

FORGE_INLINE ByteVec lookup(Bytes table, ByteVec index) {
  const __m512i wide = _mm512_broadcast_i32x4(reinterpret_cast<__m128i>(table));
  return reinterpret_cast<ByteVec>(_mm512_shuffle_epi8(wide, reinterpret_cast<__m512i>(index)));
}

#elif defined(__AVX2__)

FORGE_INLINE ByteVec lookup(Bytes table, ByteVec index) {
  const __m256i wide = _mm256_broadcastsi128_si256(reinterpret_cast<__m128i>(table));
  return reinterpret_cast<ByteVec>(_mm256_shuffle_epi8(wide, reinterpret_cast<__m256i>(index)));
}

#else

// Vectors of 16 bytes.
FORGE_INLINE ByteVec lookup(Bytes table, ByteVec index) {
#if defined(__aarch64__)
  return reinterpret_cast<ByteVec>(
      vqtbl1q_u8(reinterpret_cast<uint8x16_t>(table), reinterpret_cast<uint8x16_t>(index)));
#else
  ByteVec out;
  for (int i = 0; i < 4 * kLanes; ++i) out[i] = table[index[i] & 15];
  return out;
#endif
}

#endif

}  // namespace forge::cpu::FORGE_TARGET
