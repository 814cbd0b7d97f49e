// E4M3 as GPUs convert it: NaN is kept, and larger numbers become the largest one.
#pragma once

#include <cstdint>

#include "../../../csrc/common/quant/fp8.h"

namespace flash_attn {

inline float e4m3_to_float(uint8_t code) {
  return (code & 0x7f) == forge::e4m3_nan ? __builtin_nanf("") : forge::e4m3_to_f32(code);
}

// Element `i` of a word of four numbers.
inline float e4m3_of(uint32_t word, int i) {
  return e4m3_to_float(static_cast<uint8_t>(word >> (8 * i)));
}

inline uint8_t round_to_e4m3(float x) {
  const uint8_t sign = __builtin_signbit(x) ? 0x80 : 0;
  if (__builtin_isnan(x)) return sign | forge::e4m3_nan;
  const float all = __builtin_fabsf(x);
  const float magnitude = all < 448.0f ? all : 448.0f;
  // Below 2^-6 numbers are multiples of 2^-9. A fraction that is rounded up to 16 eighths carries
  // into the exponent.
  const int exponent = magnitude < 0x1p-6f ? -6 : __builtin_ilogbf(magnitude);
  const auto eighths =
      static_cast<int>(__builtin_nearbyintf(__builtin_ldexpf(magnitude, 3 - exponent)));
  return static_cast<uint8_t>(sign | (8 * (exponent + 6) + eighths));
}

}  // namespace flash_attn
