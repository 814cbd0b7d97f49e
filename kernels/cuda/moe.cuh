#pragma once

// The output of moe_group.cu, read by grouped_matvec.cu and grouped_gemm.cu. Pair i * top_k + k is
// the i-th token of the set with its k-th expert.

#include "moe_arguments.h"
#include "row_set.cuh"

// The row of a pair in a value that has top_k rows for every token of the step, including tokens
// outside the set.
DEVICE u64 out_row_of_pair(const RowSet& set, u32 pair, u32 top_k) {
  return u64(row_of_set(set, pair / top_k)) * top_k + pair % top_k;
}
