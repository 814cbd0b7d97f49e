// out = residual + alpha * activation(y + the sum over ranks of their products with the row times
// b[rank]). Buffers and geometry: row_arguments.h. A thread computes a column of kLoraRows rows.

#include "activation.h"

kernel void lora_sums(device float* out [[buffer(0)]], device const float* y [[buffer(1)]],
                      device const float* products [[buffer(2)]],
                      device const float* b [[buffer(3)]], device const float* ranks [[buffer(4)]],
                      device const float* residual [[buffer(5)]],
                      device const uint* n_rows [[buffer(6)]],
                      constant LoraSumsArgs& args [[buffer(7)]],
                      uint2 group [[threadgroup_position_in_grid]],
                      uint thread_index [[thread_index_in_threadgroup]]) {
  threadgroup float part[kLoraRows][kLoraColumns];
  threadgroup uint firsts[kLoraColumns];
  threadgroup uint widths[kLoraColumns];
  const uint first_row = group.y * kLoraRows, end = *n_rows;
  if (first_row >= end) return;
  const uint column = group.x * kLoraColumns + thread_index, cols = args.cols;
  float sums[kLoraRows];
  for (uint i = 0; i < kLoraRows; ++i) {
    sums[i] = 0;
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
      const float by = b[ulong(begin + r) * args.width + at];
      for (uint i = 0; i < kLoraRows; ++i) {
        if (part[i][r] != 0) sums[i] += part[i][r] * by;
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
