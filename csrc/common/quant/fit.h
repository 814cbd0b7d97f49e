#pragma once

// Fits scales to weights by least squares.

#include <cstdint>

namespace forge {

// The whole number nearest to x within low..high, halves to even; both bounds are below 2^22.
inline float nearest_level(float x, float low, float high) {
  // Adding 1.5 * 2^23 leaves no fraction bits.
  constexpr float kNoFraction = 12582912.0f;
  const float bounded = x < low ? low : x > high ? high : x;
  return (bounded + kNoFraction) - kNoFraction;
}

// The value of in[n] farthest from zero, with its sign; 0 for none.
float extreme(const float* in, uint32_t n);

// Returns the step d for which in[n] is nearest to d times the levels -half..half - 1, by the sum
// of squared differences times importance[n]; n is 8, 16 or 32. The weight farthest from zero has
// a negative level.
float fit_step(const float* in, const float* importance, uint32_t n, int half);

// weight = step * level - min, with levels from 0 up.
struct Affine {
  float step;
  float min;  ///< never below zero
};

// The same for levels 0..top and a minimum.
Affine fit_affine(const float* in, const float* importance, uint32_t n, int top);

// The index of the value nearest to x among 16 ascending ones.
uint8_t nearest_of_16(float x, const int8_t (&levels)[16]);

// Returns the step d for which in[n] is nearest to d times levels of a table, like `fit_step`.
float fit_table_step(const float* in, const float* importance, uint32_t n,
                     const int8_t (&levels)[16]);

}  // namespace forge
