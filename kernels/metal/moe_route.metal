// Chooses top_k experts a token: those with the largest router logits, ties to the lower expert,
// with their softmax probabilities (relative to the chosen ones when `normalize`) times `scale`.
// Buffers and geometry: arguments.h; a SIMD group a token.
//
// Each round finds the best expert that comes after the last chosen one in the order (larger logit,
// lower expert), so that nothing needs to be marked as taken.

#include "simd.h"

struct Ranked {
  float logit;
  uint expert;
};
inline bool ranks_before(Ranked a, Ranked b) {
  return a.logit > b.logit || (a.logit == b.logit && a.expert < b.expert);
}

inline Ranked lanes_first(Ranked own) {
  for (ushort bits = 16; bits > 0; bits /= 2) {
    const Ranked other = {simd_shuffle_xor(own.logit, bits), simd_shuffle_xor(own.expert, bits)};
    if (ranks_before(other, own)) own = other;
  }
  return own;
}

kernel void moe_route(device float* out [[buffer(0)]], device const float* logits [[buffer(1)]],
                      device const uint* n_tokens [[buffer(2)]],
                      constant MoeRouteArgs& args [[buffer(3)]],
                      uint at [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]],
                      uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  const uint token = at * n_simdgroups + simdgroup;
  if (token >= *n_tokens) return;
  const uint n_experts = args.n_experts, top_k = args.top_k;
  device const float* row = logits + ulong(token) * n_experts;
  device float* experts = out + ulong(token) * 2 * top_k;

  float largest = -INFINITY;
  for (uint e = lane; e < n_experts; e += kLanes) largest = fmax(largest, row[e]);
  largest = lanes_max(largest);
  float total = 0;
  for (uint e = lane; e < n_experts; e += kLanes) total += precise::exp(row[e] - largest);
  total = lanes_sum(total);

  float chosen = 0;
  Ranked last = {INFINITY, 0};
  for (uint k = 0; k < top_k; ++k) {
    // Should all that is left be NaN, some expert is still a valid one.
    Ranked best = {-INFINITY, n_experts - 1 - k};
    for (uint e = lane; e < n_experts; e += kLanes) {
      const Ranked candidate = {row[e], e};
      if ((k == 0 || ranks_before(last, candidate)) && ranks_before(candidate, best)) {
        best = candidate;
      }
    }
    last = lanes_first(best);
    const float probability = precise::exp(last.logit - largest);
    chosen += probability;
    // The lane that stores a weight scales it in the end.
    if (lane == k % kLanes) {
      experts[k] = float(last.expert);
      experts[top_k + k] = probability;
    }
  }
  const float factor = args.scale / (args.normalize != 0 ? chosen : total);
  for (uint k = lane; k < top_k; k += kLanes) experts[top_k + k] *= factor;
}
