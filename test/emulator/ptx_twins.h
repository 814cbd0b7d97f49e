#pragma once

// C++ implementations of the inline assembly of kernels/cuda/ptx.cuh and prelude.cuh. Each function
// has the name and meaning of the wrapper that it replaces. Included by device.h.

#include "../../csrc/common/float16.h"

namespace emulator {

struct LdmatrixArgument {
  const void* row;
  uint32_t* registers;
  int n;
};

// Lane l passes the address of row l % 8 of matrix l / 8 (8 x 8 numbers of 16 bits). It receives,
// from each matrix or its transpose, the two neighbouring numbers of row l / 4 at column 2 (l % 4).
template <bool transposed>
void perform_ldmatrix(void* const* arguments, uint32_t) {
  for (int lane = 0; lane < 32; ++lane) {
    auto& own = *static_cast<LdmatrixArgument*>(arguments[lane]);
    for (int m = 0; m < own.n; ++m) {
      uint32_t packed = 0;
      for (int e = 0; e < 2; ++e) {
        const int i = lane / 4, j = lane % 4 * 2 + e;
        const int row = transposed ? j : i, col = transposed ? i : j;
        const auto* from = static_cast<LdmatrixArgument*>(arguments[8 * m + row])->row;
        packed |= uint32_t{static_cast<const uint16_t*>(from)[col]} << (16 * e);
      }
      own.registers[m] = packed;
    }
  }
}

inline void ldmatrix(uint32_t* registers, int n, const void* row, bool transposed) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) fail("a misaligned row of ldmatrix");
  if (static_cast<int>(position().lane) / 8 < n) races::read(row, 16);
  LdmatrixArgument argument = {row, registers, n};
  collective(0xffffffffu, transposed ? WarpOp::ldmatrix_trans : WarpOp::ldmatrix, &argument,
             transposed ? perform_ldmatrix<true> : perform_ldmatrix<false>, "ldmatrix", 0);
}

struct MmaArgument {
  float* c;
  const uint32_t* a;
  const uint32_t* b;
};

inline float half_of(uint32_t word, int element) {
  return forge::f16_to_f32(static_cast<uint16_t>(word >> (16 * element)));
}
inline float brain_of(uint32_t word, int element) {
  return forge::bf16_to_f32(static_cast<uint16_t>(word >> (16 * element)));
}

// mma.m16n8k16 with PTX's layout of fragments: with g = lane / 4 and t = lane % 4, a[i] holds row
// g + 8 (i % 2), columns 2t, 2t+1 (+ 8 for i >= 2); b[i] holds column g, rows 2t, 2t+1 (+ 8 i);
// c[i] holds row g + 8 (i / 2), column 2t + i % 2.
template <float (*value_of)(uint32_t, int)>
void perform_mma(void* const* arguments, uint32_t) {
  // The eight columns of a row at a time, each of which adds its products in the order of k.
  typedef float Row __attribute__((vector_size(32)));
  float a[16][16];
  Row b[16];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = *static_cast<MmaArgument*>(arguments[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int e = 0; e < 2; ++e) {
      for (int i = 0; i < 4; ++i) {
        a[g + 8 * (i % 2)][2 * t + e + 8 * (i / 2)] = value_of(own.a[i], e);
      }
      for (int i = 0; i < 2; ++i) b[2 * t + e + 8 * i][g] = value_of(own.b[i], e);
    }
  }
  Row sums[16] = {};
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) sums[row] += a[row][k] * b[k];
  }
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = *static_cast<MmaArgument*>(arguments[lane]);
    for (int i = 0; i < 4; ++i) own.c[i] += sums[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
  }
}

// Returns the float next to a double, on the side whose last bit is 1 unless it is exact. Rounding
// it further to F16 is then the same as rounding the double.
inline float round_to_odd(double value) {
  const float near = static_cast<float>(value);
  if (near == value || __builtin_isnan(value) || __builtin_isinf(near)) return near;
  uint32_t bits;
  std::memcpy(&bits, &near, sizeof bits);
  if (bits & 1) return near;
  return nextafterf(near, value > near ? __builtin_inff() : -__builtin_inff());
}

// a * b + c for the F16 in both halves of words. In double, products are exact, and so are sums
// unless the operands are 2^30 apart: rounding to F16 is then the only one.
inline uint32_t fma_halves(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result = 0;
  for (int i = 0; i < 2; ++i) {
    const double value = double(half_of(a, i)) * half_of(b, i) + half_of(c, i);
    result |= uint32_t{forge::f32_to_f16(round_to_odd(value))} << (16 * i);
  }
  return result;
}

template <float (*value_of)(uint32_t, int)>
void mma(float* c, const uint32_t* a, const uint32_t* b) {
  MmaArgument argument = {c, a, b};
  collective(0xffffffffu, WarpOp::mma, &argument, perform_mma<value_of>, "mma", 0);
}

// Two F16 in a word, each the rounded result of `operation` on floats.
template <class Operation>
uint32_t for_halves(uint32_t a, uint32_t b, Operation operation) {
  const auto half = [&](int i) {
    return uint32_t{forge::f32_to_f16(operation(half_of(a, i), half_of(b, i)))} << (16 * i);
  };
  return half(0) | half(1);
}

}  // namespace emulator
