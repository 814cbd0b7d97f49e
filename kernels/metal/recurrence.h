#pragma once

// Columns of a state matrix that a few lanes of a SIMD group hold in registers while the tokens of
// a run pass (state_arguments.h).

#include "simd.h"

inline float sigmoid(float x) { return 1.0f / (1.0f + precise::exp(-x)); }

// log(1 + x), since MSL has no log1p and log alone loses the digits of a small x. D. Goldberg,
// "What Every Computer Scientist Should Know About Floating-Point Arithmetic", 1991, theorem 4.
inline float log_of_one_plus(float x) {
  const float sum = 1.0f + x;
  return sum == 1.0f ? x : x * precise::log(sum) / (sum - 1.0f);
}
inline float softplus(float x) {
  return fmax(x, 0.0f) + log_of_one_plus(precise::exp(-fabs(x)));
}

// Sum over the eight lanes of a column. The order of addition is the same for every token.
inline float column_sum(float x) {
  x += simd_shuffle_xor(x, ushort(4));
  x += simd_shuffle_xor(x, ushort(2));
  return x + simd_shuffle_xor(x, ushort(1));
}

// Rows row .. row + 3 of a column of n rows, with zeros from the n-th on.
inline float4 load_rows(device const float* column, uint row, uint n) {
  if (n % 4 == 0) return row < n ? *(device const float4*)(column + row) : float4(0.0f);
  return float4(row < n ? column[row] : 0.0f, row + 1 < n ? column[row + 1] : 0.0f,
                row + 2 < n ? column[row + 2] : 0.0f, row + 3 < n ? column[row + 3] : 0.0f);
}
inline void store_rows(device float* column, uint row, uint n, float4 v) {
  if (n % 4 == 0) {
    if (row < n) *(device float4*)(column + row) = v;
    return;
  }
  for (uint i = 0; i < 4; ++i) {
    if (row + i < n) column[row + i] = v[i];
  }
}
