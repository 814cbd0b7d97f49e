// out = residual + alpha * activation(y + the sum over ranks of their products with the row times
// b[rank]), where b[rank] begins at the first column of the rank. A row has several results.
//
//   y, out, residual [results, cols], products [results, n_ranks], b [blocks, n_ranks, width] or
//   [n_ranks, width], ranks [n_ranks, 3] (adapter, first column, columns) F32
//   grid: (results / 4, cols / 256); block: 256 threads, each for a column of 4 results

#include "activation.cuh"
#include "row_arguments.h"

KERNEL lora_sums(LoraSums a) {
  wait_for_previous_kernel();
  SHARED(float, products, [kLoraRows][kLoraColumns]);
  SHARED(u32, firsts, [kLoraColumns]);
  SHARED(u32, widths, [kLoraColumns]);
  const u32 first_row = blockIdx.x * kLoraRows, n_rows = *a.n_rows * a.n_results;
  if (first_row >= n_rows) return;
  const u32 column = blockIdx.y * kLoraColumns + threadIdx.x;
  float sums[kLoraRows];
  u64 blocks[kLoraRows] = {};  // the first row of b of each result
#pragma unroll
  for (u32 i = 0; i < kLoraRows; ++i) {
    if (a.b_step != 0 && first_row + i < n_rows) {
      const u32 row = (first_row + i) / a.n_results, k = (first_row + i) % a.n_results;
      const u32 block = a.routed ? u32(a.route[u64(row) * 2 * a.n_results + k]) : k;
      blocks[i] = u64(block) * a.b_step;
    }
    const bool exists = column < a.cols && first_row + i < n_rows;
    sums[i] = exists ? a.y[u64(first_row + i) * a.cols + column] : 0.0f;
  }
  for (u32 begin = 0; begin < a.n_ranks; begin += kLoraColumns) {
    __syncthreads();
    const u32 own = begin + threadIdx.x;
    if (own < a.n_ranks) {
      firsts[threadIdx.x] = u32(a.ranks[3 * own + 1]);
      widths[threadIdx.x] = u32(a.ranks[3 * own + 2]);
#pragma unroll
      for (u32 i = 0; i < kLoraRows; ++i) {
        const bool exists = first_row + i < n_rows;
        products[i][threadIdx.x] =
            exists ? a.products[u64(first_row + i) * a.n_ranks + own] : 0.0f;
      }
    }
    __syncthreads();
    const u32 count = min(kLoraColumns, a.n_ranks - begin);
    for (u32 r = 0; r < count; ++r) {
      // A column before the first one wraps around.
      const u32 at = column - firsts[r];
      if (at >= widths[r]) continue;
      bool is_used = false;
#pragma unroll
      for (u32 i = 0; i < kLoraRows; ++i) is_used = is_used || products[i][r] != 0;
      if (!is_used) continue;
      const float of_all = a.b_step == 0 ? a.b[u64(begin + r) * a.width + at] : 0.0f;
#pragma unroll
      for (u32 i = 0; i < kLoraRows; ++i) {
        if (products[i][r] == 0) continue;
        const float by =
            a.b_step == 0 ? of_all : a.b[(blocks[i] + begin + r) * a.width + at];
        sums[i] += products[i][r] * by;
      }
    }
  }
  if (column >= a.cols) return;
#pragma unroll
  for (u32 i = 0; i < kLoraRows; ++i) {
    if (first_row + i >= n_rows) return;
    const u64 at = u64(first_row + i) * a.cols + column;
    const float value = a.alpha * activate(a.activation, sums[i]);
    a.out[at] = a.has_residual ? a.residual[at] + value : value;
  }
}

INSTANCE(lora_sums)
