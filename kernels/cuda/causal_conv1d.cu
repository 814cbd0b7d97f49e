// Causal depthwise convolution over the tokens of each sequence:
// out[t][c] = activation(bias[c] + sum over i of weight[c][i] x[t - (width - 1) + i][c]).
//
//   x, out [tokens, cols], weight [cols, width], bias [cols] F32 (bias may be null)
//   state: slots of [width - 1, cols], slot_stride numbers apart: the rows before a run, replaced
//   by the last rows of the run
//   grid: (cols / 128, runs, pieces of 64 tokens of the longest run); block 128, a thread per
//   column; dynamic shared: width * 128 * 4 bytes
//   moves: 8 bytes an element; x is read `width` times, mostly from the L1 cache
//
// Only the first piece of a run reads and writes its slot: no width looks back more than 64 tokens
// (kMostConvWidth).

#include "activation.cuh"
#include "state_arguments.h"

constexpr u32 kColumns = kConvColumns, kTokens = kConvTokens;

// A column of the rows of a run, counted from the first row that its slot holds.
struct ConvColumn {
  const float* x;  // first token of the run
  const float* kept;
  u32 cols, n_kept;
  bool from_zero;

  DEVICE_MEMBER float at(u32 row) const {
    if (row >= n_kept) return x[u64(row - n_kept) * cols];
    return from_zero ? 0.0f : kept[row * cols];
  }
};

KERNEL causal_conv1d(CausalConv1d a) {
  wait_for_previous_kernel();
  DYNAMIC_SHARED(float, taps);  // [width][kColumns]
  const SlotRun run = a.runs[blockIdx.y];
  const u32 begin = blockIdx.z * kTokens, end = min(begin + kTokens, run.n_rows);
  if (begin >= run.n_rows) return;
  const u32 first_column = blockIdx.x * kColumns, n_columns = min(kColumns, a.cols - first_column);
  for (u32 i = threadIdx.x; i < n_columns * a.width; i += kColumns) {
    taps[i % a.width * kColumns + i / a.width] = a.weight[u64(first_column) * a.width + i];
  }
  __syncthreads();
  if (threadIdx.x >= n_columns) return;

  const u32 column = first_column + threadIdx.x, n_kept = a.width - 1;
  const u64 first = u64(run.first_row) * a.cols + column;
  float* slot = a.state + run.slot * a.slot_stride + column;
  const ConvColumn own = {a.x + first, slot, a.cols, n_kept, run.from_zero != 0};
  const float shift = a.has_bias ? a.bias[column] : 0.0f;
  for (u32 t = begin; t < end; ++t) {
    float sum = shift;
    for (u32 i = 0; i < a.width; ++i) sum += taps[i * kColumns + threadIdx.x] * own.at(t + i);
    a.out[first + u64(t) * a.cols] = activate(a.activation, sum);
  }
  if (begin > 0) return;
    // Each row is copied from a later row that is not yet overwritten.
  for (u32 row = 0; row < n_kept; ++row) slot[row * a.cols] = own.at(run.n_rows + row);
}

INSTANCE(causal_conv1d)
