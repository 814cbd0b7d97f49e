// Causal depthwise convolution over the tokens of each sequence:
// out[t][c] = activation(bias[c] + sum over i of weight[c][i] x[t - (width - 1) + i][c]).
// Buffers and geometry: state_arguments.h. A thread computes a column of a piece of 64 tokens; x is
// read `width` times, mostly from the cache.

#include "activation.h"

// A column of the rows of a run, counted from the first row that its slot holds.
struct ConvColumn {
  device const float* x;  // first token of the run
  device const float* kept;
  uint cols;
  uint n_kept;
  uint from_zero;

  float at(uint row) const {
    if (row >= n_kept) return x[ulong(row - n_kept) * cols];
    return from_zero != 0 ? 0.0f : kept[row * cols];
  }
};

kernel void causal_conv1d(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
                          device const float* weight [[buffer(2)]],
                          device const float* bias [[buffer(3)]],
                          device float* state [[buffer(4)]],
                          device const SlotRun* runs [[buffer(5)]],
                          constant CausalConv1dArgs& args [[buffer(6)]],
                          threadgroup float* taps [[threadgroup(0)]],
                          uint3 at [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]]) {
  const SlotRun run = runs[at.y];
  const uint begin = at.z * kConvTokens, end = min(begin + kConvTokens, run.n_rows);
  if (begin >= run.n_rows) return;
  const uint cols = args.cols, width = args.width;
  const uint first_column = at.x * kConvColumns;
  const uint n_columns = min(kConvColumns, cols - first_column);
  // Layout [width][kConvColumns].
  for (uint i = thread_index; i < n_columns * width; i += kConvColumns) {
    taps[i % width * kConvColumns + i / width] = weight[ulong(first_column) * width + i];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index >= n_columns) return;

  const uint column = first_column + thread_index, n_kept = width - 1;
  const ulong first = ulong(run.first_row) * cols + column;
  device float* slot = state + run.slot * args.slot_stride + column;
  const ConvColumn own = {x + first, slot, cols, n_kept, run.from_zero};
  const float shift = args.has_bias != 0 ? bias[column] : 0.0f;
  for (uint t = begin; t < end; ++t) {
    float sum = shift;
    for (uint i = 0; i < width; ++i) sum += taps[i * kConvColumns + thread_index] * own.at(t + i);
    out[first + ulong(t) * cols] = activate(args.activation, sum);
  }
  if (begin > 0) return;
  // Each row is copied from a later row that is not yet overwritten.
  for (uint row = 0; row < n_kept; ++row) slot[row * cols] = own.at(run.n_rows + row);
}
