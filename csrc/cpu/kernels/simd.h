#pragma once

// A vector of floats and the operations that kernels use, with one implementation per target.
//
// Every kernel file is compiled once for each target, with the instructions of the target. If two
// such compilations defined a function with external linkage, the linker would merge them, and the
// remaining copy might use instructions that the machine lacks. So everything that kernel files
// define or call is static or in namespace forge::cpu::FORGE_TARGET; they do not use the standard
// library.
//
// Each implementation defines
//   Vec, Mask             a vector of kLanes floats; the result of comparing two
//   kTileTokens           number of tokens whose accumulators for 4 rows fit the registers
//   kDirectTokens ...     the same for panels
//   load, load_n, store, store_n (the first n lanes, zeros elsewhere), set, zero
//   + - * /, fma(a, b, c) = a b + c (fused where the target has it), min, max, round
//   less, select(mask, a, b) = mask ? a : b
//   scale2(x, n)          x times 2^n for whole n in [-160, 140]
//   sum, largest          over the lanes
//   across<Op>(a)         four floats, the i-th all lanes of a[i] joined by Op::of(Vec, Vec), at
//                         little more than the cost of one vector
//   join                  kLanes floats from fours of them
//   load_f16, load_bf16, store_f16, f16_at
//   load_e4m3             kLanes numbers of E4M3 times 2^-8: float16 once the sign is moved
//   widen_part            kLanes of 16 signed bytes as floats
//   expand_bits           16 bits as bytes of 0 or 0xff

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FORGE_INLINE static inline __attribute__((always_inline))
#define FORGE_ALWAYS_INLINE __attribute__((always_inline))
#if defined(__clang__)
#define FORGE_UNROLL(n) _Pragma("unroll")
#else
#define FORGE_PRAGMA(text) _Pragma(#text)
#define FORGE_UNROLL(n) FORGE_PRAGMA(GCC unroll n)
#endif

namespace forge::cpu::FORGE_TARGET {

typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef int8_t SignedBytes __attribute__((vector_size(16)));
typedef float Four __attribute__((vector_size(16)));

FORGE_INLINE Bytes load_bytes(const uint8_t* at) {
  Bytes bytes;
  memcpy(&bytes, at, 16);
  return bytes;
}

}  // namespace forge::cpu::FORGE_TARGET

#if defined(__AVX512F__)
#include "simd_avx512.h"
#elif defined(__AVX2__)
#include "simd_avx2.h"
#elif defined(__aarch64__)
#include "simd_neon.h"
#else
#include "simd_portable.h"
#endif
#include "simd_bytes.h"

namespace forge::cpu::FORGE_TARGET {

// 16 floats, one for each row of a panel, in as many vectors as that takes.
struct Group {
  static constexpr int kVectors = 16 / kLanes;
  Vec part[kVectors];
};

FORGE_INLINE Group widen(SignedBytes bytes) {
  Group out;
  out.part[0] = widen_part<0>(bytes);
  if constexpr (Group::kVectors >= 2) out.part[1] = widen_part<1>(bytes);
  if constexpr (Group::kVectors == 4) {
    out.part[2] = widen_part<2>(bytes);
    out.part[3] = widen_part<3>(bytes);
  }
  return out;
}

FORGE_INLINE Group load_floats(const float* from) {
  Group out;
  for (int i = 0; i < Group::kVectors; ++i) out.part[i] = load(from + i * kLanes);
  return out;
}

FORGE_INLINE void store(float* to, Group a) {
  for (int i = 0; i < Group::kVectors; ++i) store(to + i * kLanes, a.part[i]);
}

// ---- rows of any length, whose last vector may be shorter --------------------------------------

// Calls body(i, n) for the n <= kLanes elements from i on, until `count` are done.
template <class Body>
FORGE_INLINE void for_vectors(uint64_t count, Body body) {
  uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, kLanes);
  if (i < count) body(i, static_cast<int>(count - i));
}

FORGE_INLINE Vec load_up_to(const float* at, int n) {
  return n == kLanes ? load(at) : load_n(at, n);
}
FORGE_INLINE void store_up_to(float* at, Vec a, int n) {
  if (n == kLanes) {
    store(at, a);
  } else {
    store_n(at, a, n);
  }
}

// The first m lanes, and zeros.
FORGE_INLINE Vec first_of(Vec a, int m) {
  if (m == kLanes) return a;
  float lanes[kLanes];
  store(lanes, a);
  return load_n(lanes, m);
}

FORGE_INLINE float sum_of_squares(const float* x, uint64_t n) {
  Vec squares = zero();
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    const Vec a = load_up_to(x + i, m);
    squares = fma(a, a, squares);
  });
  return sum(squares);
}

}  // namespace forge::cpu::FORGE_TARGET
