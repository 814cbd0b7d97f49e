// out = residual + alpha * activation(y + the sum over ranks of their products with the row times
// b[rank]). Buffers and geometry: row_arguments.h. A thread computes a column of kLoraRows results.

#include "activation.h"

kernel void lora_sums(device float* out [[buffer(0)]], device const float* y [[buffer(1)]],
                      device const float* products [[buffer(2)]],
                      device const float* route [[buffer(3)]],
                      device const float* b [[buffer(4)]], device const float* ranks [[buffer(5)]],
                      device const float* residual [[buffer(6)]],
                      device const uint* n_rows [[buffer(7)]],
                      constant LoraSumsArgs& args [[buffer(8)]],
                      uint2 group [[threadgroup_position_in_grid]],
                      uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float part[kLoraRows][kLoraColumns];
  threadgroup uint firsts[kLoraColumns];
  threadgroup uint widths[kLoraColumns];
  const uint first_row = group.x * kLoraRows, end = *n_rows * args.n_results;
  if (first_row >= end) return;
  const uint column = group.y * kLoraColumns + thread_index, cols = args.cols;
  float sums[kLoraRows];
  ulong blocks[kLoraRows];  // the first row of b of each result
  for (uint i = 0; i < kLoraRows; ++i) {
    sums[i] = 0;
    blocks[i] = 0;
    if (args.b_step != 0 && first_row + i < end) {
      const uint row = (first_row + i) / args.n_results, k = (first_row + i) % args.n_results;
      uint block = k;
      if (args.routed != 0) block = uint(route[ulong(row) * 2 * args.n_results + k]);
      blocks[i] = ulong(block) * args.b_step;
    }
    if (column < cols && first_row + i < end) {
      sums[i] = y[ulong(first_row + i) * cols + column];
    }
  }
  for (uint begin = 0; begin < args.n_ranks; begin += kLoraColumns) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint own = begin + thread_index;
    if (own < args.n_ranks) {
      firsts[thread_index] = uint(ranks[3 * own + 1]);
      widths[thread_index] = uint(ranks[3 * own + 2]);
      for (uint i = 0; i < kLoraRows; ++i) {
        part[i][thread_index] = 0;
        if (first_row + i < end) {
          part[i][thread_index] = products[ulong(first_row + i) * args.n_ranks + own];
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint count = min(uint(kLoraColumns), args.n_ranks - begin);
    for (uint r = 0; r < count; ++r) {
      // A column before the first one wraps around.
      const uint at = column - firsts[r];
      if (at >= widths[r]) continue;
      bool is_used = false;
      for (uint i = 0; i < kLoraRows; ++i) is_used = is_used || part[i][r] != 0;
      if (!is_used) continue;
      float by = 0;
      if (args.b_step == 0) by = b[ulong(begin + r) * args.width + at];
      for (uint i = 0; i < kLoraRows; ++i) {
        if (part[i][r] == 0) continue;
        if (args.b_step != 0) by = b[(blocks[i] + begin + r) * args.width + at];
        sums[i] += part[i][r] * by;
      }
    }
  }
  if (column >= cols) return;
  for (uint i = 0; i < kLoraRows; ++i) {
    if (first_row + i >= end) return;
    const ulong at = ulong(first_row + i) * cols + column;
    const float value = args.alpha * activate(args.activation, sums[i]);
    out[at] = args.has_residual != 0 ? residual[at] + value : value;
  }
}
