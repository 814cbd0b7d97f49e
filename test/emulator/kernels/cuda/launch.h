#pragma once

#include "../operations.h"

namespace kernel_test {

// As in kernels/cuda/row_set.cuh.
struct RowSet {
  const u32* count;
  const u32* list;
};

// Rows of x as convert_rows makes them.
struct HalfRows {
  Buffer<u16> x;
  Buffer<float> scale;
  u32 padded_cols;
};
HalfRows convert_rows(const Gemm& op, const RowSet& set);

// The type in which tensor cores see a weight.
std::string half_of(const DeviceWeight& weight);

// Products of the rows of a set, by convert_rows and a product on tensor cores.
void launch_gemm(const Gemm& op, const RowSet& set);
void launch_decode_gemm(const Gemm& op, const RowSet& set, u32 token_tiles, u32 row_tiles);

}  // namespace kernel_test
