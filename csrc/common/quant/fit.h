// The scales that quantised weights come nearest with.
#ifndef FORGE_COMMON_QUANT_FIT_H
#define FORGE_COMMON_QUANT_FIT_H

#include <cstdint>

namespace forge {

/// The whole number nearest to x within low..high, halves to even; both bounds are below 2^22.
inline float nearest_level(float x, float low, float high) {
  // Beside 1.5 * 2^23 there is no room for a fraction.
  constexpr float kNoFraction = 12582912.0f;
  const float bounded = x < low ? low : x > high ? high : x;
  return (bounded + kNoFraction) - kNoFraction;
}

/// The value of in[n] farthest from zero, with its sign; 0 for none.
float extreme(const float* in, uint32_t n);

/// The step d with which the levels -half..half - 1 times d come nearest to in[n], by the sum of
/// squared differences, n being 8, 16 or 32. Its sign is such that the weight farthest from zero is below
/// zero in steps.
float fit_step(const float* in, uint32_t n, int half);

/// weight = step * level - min, with levels from 0 up.
struct Affine {
  float step;
  float min;  ///< never below zero
};

/// The same for the levels 0..top of a step and a minimum.
Affine fit_affine(const float* in, uint32_t n, int top);

}  // namespace forge

#endif
