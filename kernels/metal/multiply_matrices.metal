// Multiplies matrices in registers at the highest speed, to measure it. Geometry: arguments.h; each
// SIMD group has the sums and operands of a SIMD group of gemm.h.

#include "prelude.h"

[[kernel, max_total_threads_per_threadgroup(128)]] void multiply_matrices(
    device float* sums [[buffer(0)]], constant MultiplyMatricesArgs& args [[buffer(1)]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  simdgroup_half8x8 x[2], w[4];
  simdgroup_float8x8 own[2][4];
  UNROLL
  for (uint n = 0; n < 2; ++n) x[n] = make_filled_simdgroup_matrix<half, 8, 8>(half(args.number));
  UNROLL
  for (uint i = 0; i < 4; ++i) {
    w[i] = make_filled_simdgroup_matrix<half, 8, 8>(half(args.number));
    UNROLL
    for (uint n = 0; n < 2; ++n) own[n][i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  for (uint round = 0; round < kMultiplyRounds; ++round) {
    UNROLL
    for (uint n = 0; n < 2; ++n) {
      UNROLL
      for (uint i = 0; i < 4; ++i) simdgroup_multiply_accumulate(own[n][i], x[n], w[i], own[n][i]);
    }
  }
  UNROLL
  for (uint n = 0; n < 2; ++n) {
    UNROLL
    for (uint i = 0; i < 4; ++i) {
      simdgroup_store(own[n][i], sums + ((simdgroup * 2 + n) * 4 + i) * 64, 8);
    }
  }
}
