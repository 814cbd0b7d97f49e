// The products of rows with the ranks of low-rank adapters, times the scale of the rank's adapter
// in the row's sequence. A row has a product for each of its results.
//
//   x [rows, x_cols], a [blocks, n_ranks, cols] or [n_ranks, cols], ranks [n_ranks, 3] (adapter,
//   first column, columns), scales [sequences, n_adapters],
//   products [rows * n_results, n_ranks] F32
//   grid: (results / 4, n_ranks / 8); block: a warp for each of 8 ranks, which computes it for 4
//   results, and reads it once if they are of one block

#include "row_arguments.h"
#include "warp.cuh"

KERNEL lora_products(LoraProducts a) {
  wait_for_previous_kernel();
  const u32 rank = blockIdx.y * kLoraRanks + warp_id();
  const u32 first = blockIdx.x * kLoraRows, end = *a.n_rows * a.n_results;
  if (rank >= a.n_ranks || first >= end) return;
  const u32 adapter = u32(a.ranks[3 * rank]);
  float scales[kLoraRows], sums[kLoraRows];
  const float *rows[kLoraRows], *own[kLoraRows];
  bool is_used = false;
#pragma unroll
  for (u32 i = 0; i < kLoraRows; ++i) {
    scales[i] = sums[i] = 0;
    rows[i] = a.x;
    own[i] = a.a;
    if (first + i >= end) continue;
    const u32 row = (first + i) / a.n_results, k = (first + i) % a.n_results;
    const u32 token = a.of_outputs ? u32(a.output_rows[row]) : row;
    scales[i] = a.scales[u64(a.sequences[token]) * a.n_adapters + adapter];
    is_used = is_used || scales[i] != 0;
    const u32 block = a.routed ? u32(a.route[u64(row) * 2 * a.n_results + k]) : k;
    rows[i] = a.x + u64(row) * a.x_cols + (a.x_cols == a.cols ? 0 : k * a.cols);
    own[i] = a.a + (u64(block) * a.a_step + rank) * a.cols;
  }
  if (is_used && a.a_step == 0) {
    for (u32 c = lane_id(); c < a.cols; c += kWarp) {
      const float by = a.a[u64(rank) * a.cols + c];
#pragma unroll
      for (u32 i = 0; i < kLoraRows; ++i) {
        if (scales[i] != 0) sums[i] += by * rows[i][c];
      }
    }
  } else if (is_used) {
    for (u32 c = lane_id(); c < a.cols; c += kWarp) {
#pragma unroll
      for (u32 i = 0; i < kLoraRows; ++i) {
        if (scales[i] != 0) sums[i] += own[i][c] * rows[i][c];
      }
    }
  }
#pragma unroll
  for (u32 i = 0; i < kLoraRows; ++i) {
    const float sum = warp_sum(sums[i]);
    if (lane_id() != 0 || first + i >= end) continue;
    a.products[u64(first + i) * a.n_ranks + rank] = scales[i] == 0 ? 0.0f : scales[i] * sum;
  }
}

INSTANCE(lora_products)
