#pragma once

// CUDA's built-in variables, functions and types as C++, for kernels compiled with FORGE_EMULATOR.
// kernels/cuda/prelude.cuh includes this file in place of declarations known only to GPU compilers.

#include <cstdint>
#include <cstring>

#include "block.h"
#include "fiber.h"
#include "registration.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __restrict__ __restrict

#define threadIdx (emulator::position().thread)
#define blockIdx (emulator::position().block)
#define blockDim (emulator::position().block_size)
#define gridDim (emulator::position().grid_size)

#define __syncthreads() emulator::wait_for_block(__FILE__, __LINE__)

#define SHARED(Type, name, dimensions)                                          \
  static const char name##_declaration = 0;                                     \
  typedef Type name##_array dimensions;                                         \
  name##_array& name = *static_cast<name##_array*>(                             \
      emulator::shared_array(&name##_declaration, sizeof(name##_array)))
#define DYNAMIC_SHARED(Type, name) Type* name = static_cast<Type*>(emulator::dynamic_shared())

#define FORGE_JOIN_(a, b) a##b
#define FORGE_JOIN(a, b) FORGE_JOIN_(a, b)
#define INSTANCE(...)                                                            \
  static const emulator::Registration FORGE_JOIN(registration_, __COUNTER__)(    \
      #__VA_ARGS__, __VA_ARGS__);

// The functions of C's library that kernels call. <cmath> takes longer to read than most kernels.
extern "C" {
double ceil(double) noexcept;
double log(double) noexcept;
float cosf(float) noexcept;
float erff(float) noexcept;
float exp2f(float) noexcept;
float expf(float) noexcept;
float expm1f(float) noexcept;
float fabsf(float) noexcept;
float fmaf(float, float, float) noexcept;
float fmaxf(float, float) noexcept;
float fminf(float, float) noexcept;
float log1pf(float) noexcept;
float log2f(float) noexcept;
float nextafterf(float, float) noexcept;
float rintf(float) noexcept;
float sinf(float) noexcept;
float sqrtf(float) noexcept;
float tanhf(float) noexcept;
}

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

// Blocks run one after another, so that what one has stored is visible to the next.
inline void __threadfence() {}

inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Byte i of the result is byte (selector nibble i) of the eight bytes b:a.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<unsigned>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
  }
  return result;
}

template <class T>
T __ldg(const T* p) {
  return *p;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(uint64_t{a} * b >> 32);
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline unsigned long long max(unsigned long long a, unsigned long long b) {
  return a > b ? a : b;
}
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }

template <class T>
T atomicAdd(T* address, T value) {
  T expected, desired;
  __atomic_load(address, &expected, __ATOMIC_RELAXED);
  do {
    desired = expected + value;
  } while (!__atomic_compare_exchange(address, &expected, &desired, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED));
  return expected;
}
// Counts from 0 to `last`, then again from 0. Blocks that take numbers may be interrupted after it.
inline unsigned atomicInc(unsigned* address, unsigned last) {
  unsigned before = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &before, before >= last ? 0 : before + 1, false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  emulator::let_others_run();
  return before;
}
template <class T>
T atomicExch(T* address, T value) {
  T before;
  __atomic_exchange(address, &value, &before, __ATOMIC_RELAXED);
  return before;
}
template <class T>
T atomicMin(T* address, T value) {
  T before = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (value < before && !__atomic_compare_exchange_n(address, &before, value, false,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return before;
}

#include "ptx_twins.h"
#include "warp_twins.h"
