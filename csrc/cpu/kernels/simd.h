#pragma once

// A vector of floats and the few operations kernels need of it, one implementation a target.
//
// Every kernel file is compiled once for each target with the target's own instructions. A function
// with external linkage that two such compilations define would be merged by the linker, and the
// surviving copy might hold instructions the machine lacks. So what kernel files define, and call,
// is static or in namespace forge::cpu::FORGE_TARGET, and they use nothing of the standard library.
//
// Each implementation defines
//   Vec, Mask             a vector of kLanes floats; the result of comparing two
//   kTileTokens           how many tokens by 4 rows of accumulators fit the registers
//   kDirectTokens ...     how many tokens by panels do
//   load, load_n, store, store_n (the first n lanes, zeros elsewhere), set, zero
//   + - * /, fma(a, b, c) = a b + c (fused where the target has it), min, max, round
//   less, select(mask, a, b) = mask ? a : b
//   scale2(x, n)          x times 2^n for whole n in [-160, 140]
//   sum, largest          over the lanes
//   across<Op>(a)         four floats, the i-th all lanes of a[i] joined by Op::of(Vec, Vec), at a cost
//                         of little more than that of one vector
//   join                  kLanes floats from fours of them
//   load_f16, load_bf16, store_f16, f16_at
//   load_e4m3             kLanes numbers of E4M3 times 2^-8: with their sign moved, they are float16
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

// 16 floats, one for each row of a panel, however many vectors that takes.
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

}  // namespace forge::cpu::FORGE_TARGET
