#pragma once

// Conversions between float32 and the two 16-bit float formats, in portable integer arithmetic.
//
//   f16   IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits
//   bf16  the upper half of a float32: 1 sign, 8 exponent (bias 127), 7 fraction bits
//
// Narrowing rounds to nearest, ties to even, through subnormals and overflow to infinity. A NaN
// stays a NaN of the same sign. These are the results of the conversion instructions of x86 (F16C)
// and ARM (FCVT), so code that uses the instructions agrees with code that uses these functions.

#include <bit>
#include <cstdint>

namespace forge {

// `value` / 2^`shift`, rounded to nearest, ties to even. `shift` is 1 to 31.
constexpr uint32_t shift_right_to_even(uint32_t value, uint32_t shift) {
  const uint32_t quotient = value >> shift;
  const uint32_t remainder = value & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  const bool up = remainder > half || (remainder == half && (quotient & 1) != 0);
  return quotient + (up ? 1 : 0);
}

// The float32 equal to an f16; every f16 has one.
constexpr float f16_to_f32(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: the fraction counts units of 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 0x1f) {  // infinity, or NaN made quiet
    const uint32_t quiet = fraction != 0 ? 0x00400000u : 0;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | fraction << 13);
  }
  return std::bit_cast<float>(sign | (exponent + (127 - 15)) << 23 | fraction << 13);
}

// The f16 nearest to `value`.
constexpr uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half;
  if (magnitude > 0x7f800000) {  // NaN: quiet, the upper fraction bits kept
    half = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  } else if (magnitude >= 0x47800000) {  // 2^16 and above
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) {  // 2^-14 and above: normal; a carry may reach infinity
    half = shift_right_to_even(magnitude - ((127u - 15u) << 23), 13);
  } else if (magnitude > 0x33000000) {  // above 2^-25: subnormal, in units of 2^-24
    const uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
    half = shift_right_to_even(significand, 126 - (magnitude >> 23));
  } else {
    half = 0;
  }
  return static_cast<uint16_t>(sign | half);
}

// The float32 equal to a bf16; every bf16 has one.
constexpr float bf16_to_f32(uint16_t brain) {
  return std::bit_cast<float>(uint32_t{brain} << 16);
}

// The bf16 nearest to `value`.
constexpr uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>(is_nan ? bits >> 16 | 0x40 : shift_right_to_even(bits, 16));
}

}  // namespace forge
