#pragma once

// What moe_group.cu writes, and grouped_matvec.cu and grouped_gemm.cu read.
//
// Pairs of a token and one of its experts are numbered over the tokens of a set: pair i * top_k + k
// is the set's i-th token with the k-th of its experts.

#include "row_set.cuh"

// Pairs of the same expert: entries first .. first + count of the list of pairs.
struct MoeTile {
  u32 expert;
  u32 first;
  u32 count;
};

// Where a pair's row is in a value that has top_k rows for every token of the step, whether it is
// in the set or not.
DEVICE u64 out_row_of_pair(const RowSet& set, u32 pair, u32 top_k) {
  return u64(row_of_set(set, pair / top_k)) * top_k + pair % top_k;
}
