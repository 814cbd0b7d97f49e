// The products of rows with the ranks of low-rank adapters. Buffers and geometry: row_arguments.h.
// A SIMD group reads a rank once for kLoraRows rows.

#include "simd.h"

kernel void lora_products(device float* products [[buffer(0)]], device const float* x [[buffer(1)]],
                          device const float* a [[buffer(2)]],
                          device const float* ranks [[buffer(3)]],
                          device const float* scales [[buffer(4)]],
                          device const int* sequences [[buffer(5)]],
                          device const int* output_rows [[buffer(6)]],
                          device const uint* n_rows [[buffer(7)]],
                          constant LoraProductsArgs& args [[buffer(8)]],
                          uint2 at [[threadgroup_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint rank = at.x * kLoraRanks + simdgroup, cols = args.cols;
  const uint first_row = at.y * kLoraRows, end = *n_rows;
  if (rank >= args.n_ranks || first_row >= end) return;
  const uint adapter = uint(ranks[3 * rank]);
  float row_scales[kLoraRows], sums[kLoraRows];
  bool is_used = false;
  for (uint i = 0; i < kLoraRows; ++i) {
    const uint row = first_row + i;
    row_scales[i] = sums[i] = 0;
    if (row >= end) continue;
    uint token = row;
    if (args.of_outputs != 0) token = uint(output_rows[row]);
    row_scales[i] = scales[ulong(sequences[token]) * args.n_adapters + adapter];
    is_used = is_used || row_scales[i] != 0;
  }
  if (is_used) {
    for (uint c = lane; c < cols; c += kLanes) {
      const float by = a[ulong(rank) * cols + c];
      for (uint i = 0; i < kLoraRows; ++i) {
        if (row_scales[i] != 0) sums[i] += by * x[ulong(first_row + i) * cols + c];
      }
    }
  }
  for (uint i = 0; i < kLoraRows; ++i) {
    const float sum = lanes_sum(sums[i]);
    if (lane != 0 || first_row + i >= end) continue;
    products[ulong(first_row + i) * args.n_ranks + rank] =
        row_scales[i] == 0 ? 0.0f : row_scales[i] * sum;
  }
}
