#pragma once

// Rotary embedding of a pair of numbers.

#include "prelude.cuh"

struct Angle {
  float cosine, sine;
};

// Rotates pair i of the n of a head. The order of rounding is the same in every kernel.
DEVICE void rotate_pair(float* values, u32 i, u32 n, u32 interleaved, Angle angle) {
  float& a = values[interleaved ? 2 * i : i];
  float& b = values[interleaved ? 2 * i + 1 : i + n];
  const float rotated = fmaf(a, angle.cosine, -(b * angle.sine));
  b = fmaf(a, angle.sine, b * angle.cosine);
  a = rotated;
}
