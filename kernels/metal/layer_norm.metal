// out = (x - mean) / sqrt(variance + eps) * weight + bias, for each row. Buffers and geometry:
// arguments.h.
//
// The variance is computed from the differences to the mean, in a second pass: the mean of the
// squares minus the square of the mean loses all digits if the mean is large.

#include "simd.h"

[[kernel, max_total_threads_per_threadgroup(1024)]] void layer_norm(
    device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
    device const float* weight [[buffer(2)]], device const float* bias [[buffer(3)]],
    device const uint* n_rows [[buffer(4)]], constant LayerNormArgs& args [[buffer(5)]],
    uint row [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[kLanes];
  threadgroup float square_partial[kLanes];
  if (row >= *n_rows) return;
  const Place p = {thread_index, lane, simdgroup, n_simdgroups};
  const uint cols = args.cols, threads = threads_of(p);
  const ulong begin = ulong(row) * cols;

  float sum = 0;
  for (uint i = thread_index; i < cols; i += threads) sum += x[begin + i];
  const float mean = group_sum(sum, partial, p) / float(cols);

  float squares = 0;
  for (uint i = thread_index; i < cols; i += threads) {
    const float difference = x[begin + i] - mean;
    squares += difference * difference;
  }
  const float variance = group_sum(squares, square_partial, p) / float(cols);
  const float scale = 1.0f / precise::sqrt(variance + args.eps);

  for (uint i = thread_index; i < cols; i += threads) {
    const float normed = (x[begin + i] - mean) * scale * weight[i];
    out[begin + i] = args.has_bias != 0 ? normed + bias[i] : normed;
  }
}
