// out = the columns of x in another order: column i is column order[i] of x. With a route, each
// expert has its own order, and out has the columns for each chosen expert.
//
//   x [rows, x_cols], where x_cols is cols or top_k * cols; out [rows, out_cols] F32; order
//   [experts, cols] whole numbers in F32; route [rows, 2 top_k]; without one, out_cols is cols
//   grid: (out_cols / 1024, rows), blocks for rows beyond *n_rows exit; block 256, four elements a
//   thread

#include "prelude.cuh"
#include "row_arguments.h"

KERNEL permute_columns(PermuteColumns a) {
  wait_for_previous_kernel();
  const u32 row = blockIdx.y;
  if (row >= *a.n_rows) return;
  const u32 top_k = a.out_cols / a.cols;
  for (u32 n = 0; n < 4; ++n) {
    const u32 i = blockIdx.x * 1024 + n * blockDim.x + threadIdx.x;
    if (i >= a.out_cols) return;
    const u32 k = i / a.cols;
    const u32 expert = a.routed ? u32(a.route[u64(row) * 2 * top_k + k]) : 0;
    const u32 column = u32(a.order[u64(expert) * a.cols + i % a.cols]);
    const u32 first = a.x_cols == a.cols ? 0 : k * a.cols;
    a.out[u64(row) * a.out_cols + i] = a.x[u64(row) * a.x_cols + first + column];
  }
}

INSTANCE(permute_columns)
