// out = residual + x / sqrt(mean(x^2) + eps) * (weight + offset), for each group of a row. Buffers
// and geometry: arguments.h. Each thread sums the squares of the elements at a stride of the number
// of threads; the threadgroup adds the sums. B. Zhang and R. Sennrich, "Root Mean Square Layer
// Normalization", 2019.

#include "simd.h"

[[kernel, max_total_threads_per_threadgroup(1024)]] void rms_norm(
    device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
    device const float* weight [[buffer(2)]], device const float* residual [[buffer(3)]],
    device const uint* n_rows [[buffer(4)]], constant RmsNormArgs& args [[buffer(5)]],
    uint2 at [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[kLanes];
  if (at.x >= *n_rows) return;
  const Place p = {thread_index, lane, simdgroup, n_simdgroups};
  const uint cols = args.cols, threads = threads_of(p);
  const ulong begin = (ulong(at.x) * args.groups + at.y) * cols;
  weight += args.weight_groups == 1 ? 0 : at.y * cols;

  float squares = 0;
  for (uint i = thread_index; i < cols; i += threads) squares += x[begin + i] * x[begin + i];
  const float mean = group_sum(squares, partial, p) / float(cols);
  const float scale = 1.0f / precise::sqrt(mean + args.eps);

  for (uint i = thread_index; i < cols; i += threads) {
    const float normed = x[begin + i] * scale * (weight[i] + args.offset);
    out[begin + i] = args.has_residual != 0 ? residual[begin + i] + normed : normed;
  }
}
