// The products of rows with the ranks of low-rank adapters, times the scale of the rank's adapter
// in the row's sequence.
//
//   x [rows, cols], a [n_ranks, cols], ranks [n_ranks, 3] (adapter, first column, columns), scales
//   [sequences, n_adapters], products [rows, n_ranks] F32
//   grid: (n_ranks / 8, rows / 4); block: a warp for each of 8 ranks, which reads it once for 4 rows

#include "row_arguments.h"
#include "warp.cuh"

KERNEL lora_products(LoraProducts a) {
  wait_for_previous_kernel();
  const u32 rank = blockIdx.x * kLoraRanks + warp_id();
  const u32 first_row = blockIdx.y * kLoraRows, n_rows = *a.n_rows;
  if (rank >= a.n_ranks || first_row >= n_rows) return;
  const u32 adapter = u32(a.ranks[3 * rank]);
  float scales[kLoraRows], sums[kLoraRows];
  bool is_used = false;
#pragma unroll
  for (u32 i = 0; i < kLoraRows; ++i) {
    const u32 row = first_row + i;
    scales[i] = sums[i] = 0;
    if (row >= n_rows) continue;
    const u32 token = a.of_outputs ? u32(a.output_rows[row]) : row;
    scales[i] = a.scales[u64(a.sequences[token]) * a.n_adapters + adapter];
    is_used = is_used || scales[i] != 0;
  }
  if (is_used) {
    for (u32 c = lane_id(); c < a.cols; c += kWarp) {
      const float by = a.a[u64(rank) * a.cols + c];
#pragma unroll
      for (u32 i = 0; i < kLoraRows; ++i) {
        if (scales[i] != 0) sums[i] += by * a.x[u64(first_row + i) * a.cols + c];
      }
    }
  }
#pragma unroll
  for (u32 i = 0; i < kLoraRows; ++i) {
    const float sum = warp_sum(sums[i]);
    if (lane_id() != 0 || first_row + i >= n_rows) continue;
    a.products[u64(first_row + i) * a.n_ranks + rank] = scales[i] == 0 ? 0.0f : scales[i] * sum;
  }
}

INSTANCE(lora_products)
