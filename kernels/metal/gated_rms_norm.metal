// out = x / sqrt(mean(x^2) + eps) * weight * activation(gate), with the mean over each group of
// `width` columns. Buffers and geometry: state_arguments.h. A SIMD group computes a group; its
// second read of x hits the cache.

#include "activation.h"
#include "simd.h"

kernel void gated_rms_norm(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
                           device const float* gate [[buffer(2)]],
                           device const float* weight [[buffer(3)]],
                           device const uint* n_rows [[buffer(4)]],
                           constant GatedRmsNormArgs& args [[buffer(5)]],
                           uint2 at [[threadgroup_position_in_grid]],
                           uint lane [[thread_index_in_simdgroup]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint row = at.y, group = at.x * kNormGroups + simdgroup, width = args.width;
  if (row >= *n_rows || group >= args.cols / width) return;
  const ulong begin = ulong(row) * args.cols + group * width;
  weight += args.weight_groups == 1 ? 0 : group * width;

  float squares = 0;
  for (uint i = lane; i < width; i += kLanes) squares += x[begin + i] * x[begin + i];
  const float scale = 1.0f / precise::sqrt(lanes_sum(squares) / float(width) + args.eps);

  for (uint i = lane; i < width; i += kLanes) {
    out[begin + i] =
        x[begin + i] * scale * weight[i] * activate(args.activation, gate[begin + i]);
  }
}
