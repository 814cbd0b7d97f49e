#pragma once

#include "../operations.h"

namespace kernel_test {

// As in kernels/cuda/row_set.cuh.
struct RowSet {
  const u32* count;
  const u32* list;
};

// Rows of x converted by convert_rows: [rows of the set, pieces, padded_cols].
struct HalfRows {
  Buffer<u16> x;
  Buffer<float> scale;
  u32 padded_cols;
};
HalfRows convert_rows(const DeviceWeight& weight, const float* x, const RowSet& set, u32 max_rows,
                      u32 pieces);

// The type that tensor cores read for a weight.
std::string half_of(const DeviceWeight& weight);

// Launches convert_rows and a product on tensor cores for the rows of a set.
void launch_gemm(const Gemm& op, const RowSet& set);
void launch_decode_gemm(const Gemm& op, const RowSet& set, u32 token_tiles, u32 row_tiles);

// Groups the experts of the tokens of a set; ignores op's n_tokens.
void launch_moe_group(const PairGroups& op, const RowSet& set, u32 warps);
// Products with these experts, with the tiles of launch_moe_group: at_once pairs for matvec, 64 for
// gemm.
void launch_grouped_matvec(const GroupedMatvec& op, const RowSet& set);
void launch_grouped_gemm(const GroupedMatvec& op, const RowSet& set, u32 max_tokens);

}  // namespace kernel_test
