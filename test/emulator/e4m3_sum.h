#pragma once

// Sums of products of E4M3 as the tensor cores of SM90 add them. An instruction adds 32 products to
// a sum in fixed point: it cuts each off 13 bits after the leading bit of the largest, and the
// result 13 bits after its own. Found by 32 calls of libflash_attn on an H200, whose log-sum-exps
// are 3e-5 to 0.12 off those of exact sums: emulated with these sums, they are off by as much, to
// 6e-6. With 12 or 14 bits, or cut off downwards, they are not.

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <cstdint>

namespace emulator::sm90 {

// Numbers of E4M3 that an instruction multiplies.
constexpr int kE4m3Depth = 32;

// Returns the position of the leading bit of a normal number.
inline int leading_bit(float x) {
  return static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 0xff) - 127;
}

// Returns sum + a b, with the products of kE4m3Depth numbers each.
inline float add_e4m3_products(float sum, const float* a, const float* b) {
  constexpr int kBits = 13;
  double terms[kE4m3Depth + 1];
  terms[kE4m3Depth] = sum;
  double exact = sum;
  int largest = sum == 0 ? INT_MIN : leading_bit(sum);
  for (int i = 0; i < kE4m3Depth; ++i) {
    terms[i] = double{a[i]} * b[i];
    exact += terms[i];
    // Products of fractions from 1 to 2 are not shifted before they are added.
    if (terms[i] != 0) largest = std::max(largest, leading_bit(a[i]) + leading_bit(b[i]));
  }
  if (largest == INT_MIN || !std::isfinite(exact)) return static_cast<float>(exact);
  const double scale = std::ldexp(1.0, kBits - largest);
  int64_t total = 0;
  for (const double term : terms) total += static_cast<int64_t>(term * scale);
  const int width = std::bit_width(static_cast<uint64_t>(total < 0 ? -total : total));
  const int64_t last = int64_t{1} << std::max(0, width - 1 - kBits);
  return static_cast<float>(static_cast<double>(total / last * last) / scale);
}

}  // namespace emulator::sm90
