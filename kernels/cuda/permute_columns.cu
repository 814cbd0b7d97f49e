// out = the columns of x in another order: column i is column order[i] of x. With a route, each
// expert has its own order, and out has the columns for each chosen expert.
//
//   x [rows, x_cols], where x_cols is cols or top_k * cols; out [rows, out_cols] F32; order
//   [experts, cols] whole numbers in F32; route [rows, 2 top_k], or null: then out_cols is cols
//   grid: (out_cols / 1024, rows), blocks for rows beyond *n_rows exit; block 256, four elements a
//   thread

#include "prelude.cuh"

KERNEL permute_columns(float* out, const float* x, const float* order, const float* route,
                       const u32* n_rows, u32 x_cols, u32 cols, u32 out_cols) {
  wait_for_previous_kernel();
  const u32 row = blockIdx.y;
  if (row >= *n_rows) return;
  const u32 top_k = out_cols / cols;
  for (u32 n = 0; n < 4; ++n) {
    const u32 i = blockIdx.x * 1024 + n * blockDim.x + threadIdx.x;
    if (i >= out_cols) return;
    const u32 k = i / cols;
    const u32 expert = route ? u32(route[u64(row) * 2 * top_k + k]) : 0;
    const u32 column = u32(order[u64(expert) * cols + i % cols]);
    const u32 first = x_cols == cols ? 0 : k * cols;
    out[u64(row) * out_cols + i] = x[u64(row) * x_cols + first + column];
  }
}

INSTANCE(permute_columns)
