#pragma once

#include "operations.h"

namespace kernel_test {

// The fast formats without F32.
inline const WeightKind* const half_kinds = fast_kinds + 1;
constexpr int kHalfKinds = 6;

// Compares a product by `multiply` with plain loops.
void check_gemm(const WeightKind& kind, u32 rows, u32 cols, u32 tokens,
                void (*multiply)(const Gemm&));

}  // namespace kernel_test
