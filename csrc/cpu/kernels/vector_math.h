#pragma once

// exp, tanh, erfc and the activations built from them, to about 1e-6 relative. NaN stays NaN.
// The polynomials are least-maximum fits over their intervals.

#include "simd.h"

namespace forge::cpu::FORGE_TARGET {

// c[0] + c[1] x + c[2] x^2 + ...
template <int n>
FORGE_INLINE Vec polynomial(Vec x, const float (&c)[n]) {
  Vec value = set(c[n - 1]);
  for (int i = n - 2; i >= 0; --i) value = fma(value, x, set(c[i]));
  return value;
}

// exp(x) = 2^n exp(r) with |r| <= ln(2) / 2. Beyond the clamp the result is 0 or infinity anyway.
FORGE_INLINE Vec exp(Vec x) {
  static constexpr float kTail[] = {0.5f, 0.16666518f, 0.041666206f, 0.0083688824f, 0.0013950476f};
  // 90 is past the overflow, -104 past the last subnormal; NaN, the second operand, passes through.
  x = min(set(90.0f), max(set(-104.0f), x));
  const Vec n = round(x * set(1.44269504f));
  // ln(2) in two parts; the first has few enough bits for n times it to be exact.
  const Vec r = fma(n, set(2.12194440e-4f), fma(n, set(-0.693359375f), x));
  const Vec value = fma(polynomial(r, kTail) * r, r, r) + set(1.0f);
  return scale2(value, n);
}

constexpr float kLog2E = 1.44269504f;

// 2^x for x <= 0, as a softmax needs; below -150 the result is 0.
FORGE_INLINE Vec exp2_of_negative(Vec x) {
  static constexpr float kTail[] = {0.693147004f, 0.240222424f, 0.0555073358f, 0.00967151299f,
                                    0.00132647273f};
  x = max(set(-150.0f), x);
  const Vec n = round(x);
  const Vec r = x - n;
  return scale2(fma(polynomial(r, kTail), r, set(1.0f)), n);
}

FORGE_INLINE Vec negate(Vec x) { return zero() - x; }
FORGE_INLINE Vec magnitude(Vec x) { return max(negate(x), x); }

// Near zero x + x^3 p(x^2), elsewhere 1 - 2 / (exp(2 x) + 1).
FORGE_INLINE Vec tanh(Vec x) {
  static constexpr float kNear[] = {-0.33333284f, 0.13331491f, -0.053743497f, 0.020650579f,
                                    -0.0057170368f};
  const Vec square = x * x;
  const Vec near = fma(polynomial(square, kNear) * square, x, x);
  const Vec far = set(1.0f) - set(2.0f) / (exp(x + x) + set(1.0f));
  return select(less(magnitude(x), set(0.625f)), near, far);
}

// For x >= 0: t exp(-x^2) p(t) with t = 1 / (1 + x / 2).
FORGE_INLINE Vec erfc_of_positive(Vec x) {
  static constexpr float kP[] = {0.28208545f, 0.28239238f,  0.24297976f, 0.20317674f, -0.027781527f,
                                 0.27974224f, -0.48866171f, 0.28527981f, -0.05921321f};
  const Vec t = set(1.0f) / fma(x, set(0.5f), set(1.0f));
  return t * exp(negate(x * x)) * polynomial(t, kP);
}

FORGE_INLINE Vec sigmoid(Vec x) { return set(1.0f) / (set(1.0f) + exp(negate(x))); }
FORGE_INLINE Vec silu(Vec x) { return x / (set(1.0f) + exp(negate(x))); }

FORGE_INLINE Vec gelu_tanh(Vec x) {
  // 0.5 (1 + tanh(y)) = 1 / (1 + exp(-2 y)), which is accurate for large negative y.
  const Vec y = x * fma(x * x, set(0.0713548163f), set(1.59576912f));
  return x / (set(1.0f) + exp(negate(y)));
}

FORGE_INLINE Vec gelu_erf(Vec x) {
  // 0.5 (1 + erf(z)) = 0.5 erfc(-z).
  const Vec half_tail = set(0.5f) * erfc_of_positive(magnitude(x) * set(0.707106781f));
  return x * select(less(x, zero()), half_tail, set(1.0f) - half_tail);
}

// NaN, as the second operand, passes through max.
FORGE_INLINE Vec relu_squared(Vec x) {
  const Vec positive = max(zero(), x);
  return positive * positive;
}

// FORGE_IDENTITY, FORGE_SILU, FORGE_GELU_TANH, FORGE_GELU_ERF, FORGE_RELU_SQUARED.
FORGE_INLINE Vec activate(uint32_t activation, Vec x) {
  switch (activation) {
    case 1: return silu(x);
    case 2: return gelu_tanh(x);
    case 3: return gelu_erf(x);
    case 5: return relu_squared(x);
    default: return x;
  }
}

// FORGE_CLAMPED_SWIGLU. NaN, as the second operand, passes through min and max.
FORGE_INLINE Vec clamped_swiglu(Vec gate, Vec up) {
  const Vec g = min(set(7.0f), gate), u = max(set(-7.0f), min(set(7.0f), up));
  return (u + set(1.0f)) * (g / (set(1.0f) + exp(set(-1.702f) * g)));
}

FORGE_INLINE Vec gated_unit(uint32_t unit, Vec gate, Vec up) {
  return unit == 4 ? clamped_swiglu(gate, up) : activate(unit, gate) * up;
}

}  // namespace forge::cpu::FORGE_TARGET
