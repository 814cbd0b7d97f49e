#pragma once

// The pairs of moe_group.cu and head_groups.cu, and what products with experts read and store for
// them. Pair i * top_k + k is the i-th token of the set with its k-th expert.

#include "row_set.cuh"

// The row of a pair in a value that has top_k rows for every token of the step, including tokens
// outside the set.
DEVICE u64 out_row_of_pair(const RowSet& set, u32 pair, u32 top_k) {
  return u64(row_of_set(set, pair / top_k)) * top_k + pair % top_k;
}

// The rows of x that a pair multiplies: of F32 rows, and of converted ones.
DEVICE u64 x_row_of_pair(const RowSet& set, const ExpertPairs& e, u32 pair) {
  return e.x_shared ? row_of_set(set, pair / e.top_k) : out_row_of_pair(set, pair, e.top_k);
}
DEVICE u32 converted_row_of_pair(const ExpertPairs& e, u32 pair) {
  return e.x_shared ? pair / e.top_k : pair;
}

DEVICE WeightRows rows_of_expert(WeightRows weight, u32 expert) {
  weight.data += u64(expert) * weight.rows * weight.row_stride;
  return weight;
}

DEVICE void store_of_pair(const ProductOperands& a, const ExpertPairs& e, u32 expert, u32 pair,
                          u32 row, float product) {
  const u32 rows = a.weight.rows;
  a.out[out_row_of_pair(a.set, pair, e.top_k) * rows + row] =
      e.bias ? product + e.bias[u64(expert) * rows + row] : product;
}
