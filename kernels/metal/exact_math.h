#pragma once

// Replacements for arithmetic in double, which the GPU lacks: sums and products of floats with
// their rounding errors, and products of 64-bit integers and fractions.

#include "prelude.h"

// high + low, where low is the rounding error of high.
struct FloatPair {
  float high;
  float low;
};

// The exact sum and product: D. E. Knuth, "The Art of Computer Programming", 4.2.2; T. J. Dekker,
// "A Floating-Point Technique for Extending the Available Precision", 1971, with a fused
// multiply-add.
inline FloatPair exact_sum(float a, float b) {
  const float sum = a + b, of_b = sum - a;
  return {sum, (a - (sum - of_b)) + (b - of_b)};
}
inline FloatPair exact_product(float a, float b) {
  const float product = a * b;
  return {product, fma(a, b, -product)};
}
inline FloatPair quotient(float a, float b) {
  const float q = a / b;
  return {q, fma(-q, b, a) / b};
}

// (logit > 0 ? logit / repeat : logit * repeat) - (presence + count * frequency), rounded once.
inline float penalized(float logit, float repeat, float presence, float count, float frequency) {
  const FloatPair scaled = logit > 0 ? quotient(logit, repeat) : exact_product(logit, repeat);
  const FloatPair counted = exact_product(count, frequency);
  const FloatPair penalty = exact_sum(presence, counted.high);
  const FloatPair value = exact_sum(scaled.high, -penalty.high);
  const float low = value.low + (scaled.low - (penalty.low + counted.low));
  // Rounding errors of infinities are NaN.
  return low == low ? value.high + low : scaled.high - penalty.high;
}

// floor(total * (random + 1/2) / 2^32), for total < 2^62.
inline ulong drawn_target(ulong total, uint random) {
  const ulong half_total = total / 2;
  const ulong low = ulong(uint(total)) * random, high = (total >> 32) * random;
  const ulong carries = (ulong(uint(low)) + uint(half_total)) >> 32;
  return high + (low >> 32) + (half_total >> 32) + carries;
}

// ceil(share * total), at least 1, for share in [0, 1) and total < 2^62.
inline ulong goal_of(float share, ulong total) {
  // share = mantissa * 2^-shift, so that the product is exact in 128 bits.
  const uint bits = as_type<uint>(share), exponent = bits >> 23 & 255;
  if (!(share > 0) || exponent == 0) return 1;
  const ulong mantissa = (bits & 0x7fffff) | 0x800000;
  const uint shift = 150 - exponent;
  const ulong low = ulong(uint(total)) * mantissa, high = (total >> 32) * mantissa;
  const ulong sum = low + (high << 32);
  const ulong top = (high >> 32) + (sum < low ? 1 : 0);
  if (shift >= 64) return 1;
  const ulong whole = (sum >> shift) | (shift == 0 ? 0 : top << (64 - shift));
  const bool rest = shift > 0 && (sum << (64 - shift)) != 0;
  const ulong goal = whole + (rest ? 1 : 0);
  return goal > 0 ? goal : 1;
}
