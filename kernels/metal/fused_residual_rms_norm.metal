// Adds to the residual stream and normalizes it for the next block, in one launch:
//   sum = residual + (x_weight ? x / rms(x, eps) * (x_weight + offset) : x)
//   out = sum / rms(sum, next_eps) * (weight + next_offset)
// With x_weight, the first line is the norm after a block of Gemma 2 and 3 and OLMo 2. Buffers and
// geometry: arguments.h.

#include "simd.h"

[[kernel, max_total_threads_per_threadgroup(1024)]] void fused_residual_rms_norm(
    device float* out [[buffer(0)]], device float* sum [[buffer(1)]],
    device const float* x [[buffer(2)]], device const float* x_weight [[buffer(3)]],
    device const float* residual [[buffer(4)]], device const float* weight [[buffer(5)]],
    device const uint* n_rows [[buffer(6)]], constant FusedResidualRmsNormArgs& args [[buffer(7)]],
    uint row [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[kLanes];
  threadgroup float next_partial[kLanes];
  if (row >= *n_rows) return;
  const Place p = {thread_index, lane, simdgroup, n_simdgroups};
  const uint cols = args.cols, threads = threads_of(p);
  const ulong begin = ulong(row) * cols;
  const bool norms_x = args.has_x_weight != 0;

  float scale = 1;
  if (norms_x) {
    float squares = 0;
    for (uint i = thread_index; i < cols; i += threads) squares += x[begin + i] * x[begin + i];
    scale = 1.0f / precise::sqrt(group_sum(squares, partial, p) / float(cols) + args.eps);
  }

  float squares = 0;
  for (uint i = thread_index; i < cols; i += threads) {
    const float value = x[begin + i];
    const float added = norms_x ? value * scale * (x_weight[i] + args.offset) : value;
    const float total = residual[begin + i] + added;
    sum[begin + i] = total;
    squares += total * total;
  }
  const float mean = group_sum(squares, next_partial, p) / float(cols);
  const float next_scale = 1.0f / precise::sqrt(mean + args.next_eps);

  // A thread only reads elements of the sum that it wrote itself.
  for (uint i = thread_index; i < cols; i += threads) {
    out[begin + i] = sum[begin + i] * next_scale * (weight[i] + args.next_offset);
  }
}
