#pragma once

// Mathematics, conversions and atomic operations.

namespace metal {

template <class T, class U>
T as_type(U from) {
  static_assert(sizeof(T) == sizeof(U), "as_type keeps the size");
  T to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
inline float fmin(float a, float b) { return std::fmin(a, b); }
inline float fmax(float a, float b) { return std::fmax(a, b); }
inline float fabs(float x) { return std::fabs(x); }
inline float rint(float x) { return std::rint(x); }
inline float fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

inline uint mulhi(uint a, uint b) { return uint(ulong(a) * b >> 32); }
inline uint popcount(uint x) { return uint(__builtin_popcount(x)); }
inline uint ctz(uint x) { return x == 0 ? 32 : uint(__builtin_ctz(x)); }
inline uint clz(uint x) { return x == 0 ? 32 : uint(__builtin_clz(x)); }

namespace precise {
inline float exp(float x) { return std::exp(x); }
inline float log(float x) { return std::log(x); }
inline float tanh(float x) { return std::tanh(x); }
inline float sqrt(float x) { return std::sqrt(x); }
inline float sin(float x) { return std::sin(x); }
inline float cos(float x) { return std::cos(x); }
}  // namespace precise

enum memory_order { memory_order_relaxed };

struct atomic_uint {
  uint value;
};
struct atomic_float {
  float value;
};

inline uint atomic_fetch_add_explicit(atomic_uint* to, uint by, memory_order) {
  return __atomic_fetch_add(&to->value, by, __ATOMIC_RELAXED);
}
inline uint atomic_exchange_explicit(atomic_uint* to, uint value, memory_order) {
  return __atomic_exchange_n(&to->value, value, __ATOMIC_RELAXED);
}
inline uint atomic_fetch_min_explicit(atomic_uint* to, uint value, memory_order) {
  uint before = __atomic_load_n(&to->value, __ATOMIC_RELAXED);
  while (value < before && !__atomic_compare_exchange_n(&to->value, &before, value, false,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return before;
}
inline float atomic_fetch_add_explicit(atomic_float* to, float by, memory_order) {
  float before, after;
  __atomic_load(&to->value, &before, __ATOMIC_RELAXED);
  do {
    after = before + by;
  } while (!__atomic_compare_exchange(&to->value, &before, &after, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED));
  return before;
}

}  // namespace metal
