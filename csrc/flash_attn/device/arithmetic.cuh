// Fast arithmetic functions and pairs of 16-bit numbers on a GPU.
#pragma once

#include <cuda_fp16.h>

#include "device/threads.cuh"
#include "device/types.h"

namespace flash_attn {

// Returns the same number, opaque to the compiler: results computed from it earlier are recomputed
// instead of being kept in registers.
FA_DEVICE int forget(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Completes the computation of two numbers before the instructions that follow. A branch that
// depends on them and that negative numbers alone would take keeps ptxas from moving the
// computation after a wait for products in flight; a barrier of memory does not.
FA_DEVICE void compute_here(float a, float b) {
  if (fminf(a, b) < 0) asm volatile("nanosleep.u32 0;");
}

// Completes the computation of addresses, combined by "or", likewise. None is in the upper half of
// memory. The vote keeps the lanes together.
FA_DEVICE void compute_here(uintptr_t addresses) {
  if (any_lane(static_cast<intptr_t>(addresses) < 0)) asm volatile("nanosleep.u32 0;");
}

// The upper half of a product.
FA_DEVICE uint32_t multiply_high(uint32_t a, uint32_t b) { return __umulhi(a, b); }

// 2^x to 2 units in the last place; 0 for -infinity.
FA_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x to 1 unit in the last place.
FA_DEVICE float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

FA_DEVICE float log2_fast(float x) { return __log2f(x); }

// Two numbers rounded to T: the first in the lower half.
template <class T>
FA_DEVICE uint32_t pack(float low, float high);

template <>
FA_DEVICE uint32_t pack<f16>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

template <>
FA_DEVICE uint32_t pack<bf16>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Four numbers rounded to E4M3, the first in the lowest byte. Larger numbers than 448 become 448.
FA_DEVICE uint32_t pack_e4m3(float first, float second, float third, float fourth) {
  uint32_t packed;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n"
      "}"
      : "=r"(packed)
      : "f"(first), "f"(second), "f"(third), "f"(fourth));
  return packed;
}

// Bytes 0 and 2 (kOdd: 1 and 3) of a, then those of b.
template <int kOdd>
FA_DEVICE uint32_t every_other_byte(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, kOdd != 0 ? 0x7531 : 0x6420);
}

// Bytes kFirst and kSecond of a word of signed bytes, each plus 128, as a pair of F16. As the low
// byte of an F16, a number adds to 1024.
template <int kFirst, int kSecond>
FA_DEVICE uint32_t bytes_to_halves(uint32_t word) {
  const uint32_t large = __byte_perm(word, 0x64, 0x4040 | kSecond << 8 | kFirst);
  uint32_t halves;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(halves) : "r"(large), "r"(0x64806480));
  return halves;
}

// Products of two pairs of F16.
FA_DEVICE uint32_t multiply_halves(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// Half kA (0 or 1) of a, and half kB of b, as a pair.
template <int kA, int kB>
FA_DEVICE uint32_t pair_halves(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, (kB == 0 ? 0x5400 : 0x7600) | (kA == 0 ? 0x10 : 0x32));
}

// Half kHalf of a pair of F16.
template <int kHalf>
FA_DEVICE float half_to_float(uint32_t pair) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(pair >> (16 * kHalf))));
}

FA_DEVICE float number_of(f16 value) { return __half2float(__ushort_as_half(value.bits)); }
FA_DEVICE float number_of(bf16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}

// Loads four bytes, or twice four, at a multiple of as many.
FA_DEVICE uint32_t load_word(const void *from) { return *static_cast<const uint32_t *>(from); }
FA_DEVICE void load_words(uint32_t &first, uint32_t &second, const void *from) {
  const uint2 words = *static_cast<const uint2 *>(from);
  first = words.x, second = words.y;
}

struct alignas(16) Words4 {
  uint32_t word[4];
};

// An entry of a table in global memory, or `otherwise` if the table is null. Not a branch: loads
// of several tables are in flight together.
FA_DEVICE int load_entry(const int32_t *table, int index, int otherwise) {
  int value = otherwise;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.u64 p, %1, 0;\n"
      "@p ld.global.b32 %0, [%2];\n"
      "}"
      : "+r"(value)
      : "l"(table), "l"(table + index));
  return value;
}

// Four neighbouring floats, 16-byte aligned.
using Floats4 = float[4];

FA_DEVICE void load_floats(Floats4 &to, const float *from) {
  const float4 value = *reinterpret_cast<const float4 *>(from);
  to[0] = value.x, to[1] = value.y, to[2] = value.z, to[3] = value.w;
}
FA_DEVICE void store_floats(float *to, const Floats4 &value) {
  *reinterpret_cast<float4 *>(to) = make_float4(value[0], value[1], value[2], value[3]);
}

FA_DEVICE void load_16_bytes(Words4 &to, const void *from) {
  const uint4 words = *static_cast<const uint4 *>(from);
  to.word[0] = words.x, to.word[1] = words.y, to.word[2] = words.z, to.word[3] = words.w;
}

FA_DEVICE void store_16_bytes(void *to, const Words4 &value) {
  const uint32_t(&word)[4] = value.word;
  *static_cast<uint4 *>(to) = make_uint4(word[0], word[1], word[2], word[3]);
}

}  // namespace flash_attn
