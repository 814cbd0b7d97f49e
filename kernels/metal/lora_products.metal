// The products of rows with the ranks of low-rank adapters. Buffers and geometry: row_arguments.h.
// A SIMD group computes a rank for kLoraRows results, and reads it once if they are of one block.

#include "simd.h"

kernel void lora_products(device float* products [[buffer(0)]], device const float* x [[buffer(1)]],
                          device const float* route [[buffer(2)]],
                          device const float* a [[buffer(3)]],
                          device const float* ranks [[buffer(4)]],
                          device const float* scales [[buffer(5)]],
                          device const int* sequences [[buffer(6)]],
                          device const int* output_rows [[buffer(7)]],
                          device const uint* n_rows [[buffer(8)]],
                          constant LoraProductsArgs& args [[buffer(9)]],
                          uint2 at [[threadgroup_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint rank = at.y * kLoraRanks + simdgroup, cols = args.cols;
  const uint first = at.x * kLoraRows, end = *n_rows * args.n_results;
  if (rank >= args.n_ranks || first >= end) return;
  const uint adapter = uint(ranks[3 * rank]);
  float row_scales[kLoraRows], sums[kLoraRows];
  // First element of x and of a for each result.
  ulong rows[kLoraRows], own[kLoraRows];
  bool is_used = false;
  for (uint i = 0; i < kLoraRows; ++i) {
    row_scales[i] = sums[i] = 0;
    rows[i] = own[i] = 0;
    if (first + i >= end) continue;
    const uint row = (first + i) / args.n_results, k = (first + i) % args.n_results;
    uint token = row, block = k;
    if (args.of_outputs != 0) token = uint(output_rows[row]);
    if (args.routed != 0) block = uint(route[ulong(row) * 2 * args.n_results + k]);
    row_scales[i] = scales[ulong(sequences[token]) * args.n_adapters + adapter];
    is_used = is_used || row_scales[i] != 0;
    rows[i] = ulong(row) * args.x_cols + (args.x_cols == cols ? 0 : k * cols);
    own[i] = (ulong(block) * args.a_step + rank) * cols;
  }
  if (is_used && args.a_step == 0) {
    for (uint c = lane; c < cols; c += kLanes) {
      const float by = a[ulong(rank) * cols + c];
      for (uint i = 0; i < kLoraRows; ++i) {
        if (row_scales[i] != 0) sums[i] += by * x[rows[i] + c];
      }
    }
  } else if (is_used) {
    for (uint c = lane; c < cols; c += kLanes) {
      for (uint i = 0; i < kLoraRows; ++i) {
        if (row_scales[i] != 0) sums[i] += a[own[i] + c] * x[rows[i] + c];
      }
    }
  }
  for (uint i = 0; i < kLoraRows; ++i) {
    const float sum = lanes_sum(sums[i]);
    if (lane != 0 || first + i >= end) continue;
    products[ulong(first + i) * args.n_ranks + rank] =
        row_scales[i] == 0 ? 0.0f : row_scales[i] * sum;
  }
}
