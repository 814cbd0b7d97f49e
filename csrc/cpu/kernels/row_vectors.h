#pragma once

// Rows of any length as vectors, the last one shorter.

#include "simd.h"

namespace forge::cpu::FORGE_TARGET {

// Calls body(i, n) for the n <= kLanes elements from i on, until `count` are done.
template <class Body>
FORGE_INLINE void for_vectors(uint64_t count, Body body) {
  uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, kLanes);
  if (i < count) body(i, static_cast<int>(count - i));
}

FORGE_INLINE Vec load_up_to(const float* at, int n) {
  return n == kLanes ? load(at) : load_n(at, n);
}
FORGE_INLINE void store_up_to(float* at, Vec a, int n) {
  if (n == kLanes) {
    store(at, a);
  } else {
    store_n(at, a, n);
  }
}

// The first m lanes, and zeros.
FORGE_INLINE Vec first_of(Vec a, int m) {
  if (m == kLanes) return a;
  float lanes[kLanes];
  store(lanes, a);
  return load_n(lanes, m);
}

}  // namespace forge::cpu::FORGE_TARGET
