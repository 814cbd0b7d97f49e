// Numbers used by every kernel.
#pragma once

namespace flash_attn {

// Exponentials use base 2; logarithms are returned in base e.
inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;
inline constexpr float kMinusInfinity = -__builtin_huge_valf();
// The lowest finite number, and the smallest positive one that is not denormal.
inline constexpr float kLowest = -3.40282347e38f;
inline constexpr float kSmallest = 1.17549435e-38f;

}  // namespace flash_attn
