// Chooses top_k experts per token: the largest scores, ties to the lower expert. Scores are softmax
// probabilities or sigmoids of the router's logits. With a bias, only the choice uses score + bias.
// Scores of sparsemixer (2) are described in csrc/common/operations.h.
// Of `n_groups` groups of experts, the best `top_groups` take part: those with the largest score,
// or, with a bias, the largest sum of two (DeepSeek-AI, arXiv:2405.04434 and arXiv:2412.19437). A
// weight is the score (relative to the sum of the chosen if `normalize`) * scale * expert_scales.
// Buffers and geometry: arguments.h; a SIMD group per token.
//
// Each round finds the best expert after the previously chosen one in the order (larger value,
// lower expert), so no expert has to be marked as chosen. Without bias the value is the logit,
// which has the order of the scores.

#include "simd.h"

struct Ranked {
  float worth;
  uint expert;
};
inline bool ranks_before(Ranked a, Ranked b) {
  return a.worth > b.worth || (a.worth == b.worth && a.expert < b.expert);
}

inline Ranked lanes_first(Ranked own) {
  for (ushort bits = 16; bits > 0; bits /= 2) {
    const Ranked other = {simd_shuffle_xor(own.worth, bits), simd_shuffle_xor(own.expert, bits)};
    if (ranks_before(other, own)) own = other;
  }
  return own;
}

// The largest logit, and the sum of the exponentials of a softmax.
struct Softmax {
  float largest, total;
};

inline float score_of(float logit, Softmax softmax, constant MoeRouteArgs& args) {
  return args.scores == 1 ? 1.0f / (1.0f + precise::exp(-logit))
                          : precise::exp(logit - softmax.largest) / softmax.total;
}

inline float worth_of(device const float* row, device const float* bias, uint e, Softmax softmax,
                      constant MoeRouteArgs& args) {
  return args.has_bias != 0 ? score_of(row[e], softmax, args) + bias[e] : row[e];
}

// The score of sparsemixer of the best expert: among those that do not rank before it.
inline float sparse_score(device const float* row, Ranked best, constant MoeRouteArgs& args,
                          uint lane) {
  float total = 0;
  for (uint e = lane; e < args.n_experts; e += kLanes) {
    const float logit = row[e];
    const bool is_far = (best.worth - logit) / fmax(fabs(logit), best.worth) > args.threshold;
    if (!is_far && !ranks_before({logit, e}, best)) total += precise::exp(logit - best.worth);
  }
  return 1.0f / lanes_sum(total);
}

// A bit for each group that takes part.
inline uint best_groups(device const float* row, device const float* bias, Softmax softmax,
                        constant MoeRouteArgs& args, uint lane) {
  const uint n_groups = args.n_groups, size = args.n_experts / n_groups;
  float first = -INFINITY, second = -INFINITY;
  if (lane < n_groups) {
    for (uint e = lane * size; e < (lane + 1) * size; ++e) {
      const float worth = worth_of(row, bias, e, softmax, args);
      second = fmax(second, fmin(first, worth));
      first = fmax(first, worth);
    }
  }
  const Ranked own = {args.has_bias != 0 && size > 1 ? first + second : first, lane};
  uint before = 0;
  for (uint g = 0; g < n_groups; ++g) {
    const Ranked other = {simd_shuffle(own.worth, ushort(g)), g};
    before += ranks_before(other, own) ? 1 : 0;
  }
  return lanes_sum(lane < n_groups && before < args.top_groups ? 1u << lane : 0u);
}

kernel void moe_route(device float* out [[buffer(0)]], device const float* logits [[buffer(1)]],
                      device const float* bias [[buffer(2)]],
                      device const float* expert_scales [[buffer(3)]],
                      device const uint* n_tokens [[buffer(4)]],
                      constant MoeRouteArgs& args [[buffer(5)]],
                      uint at [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]],
                      uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  const uint token = at * n_simdgroups + simdgroup;
  if (token >= *n_tokens) return;
  const uint n_experts = args.n_experts, top_k = args.top_k;
  device const float* row = logits + ulong(token) * n_experts;
  device float* chosen = out + ulong(token) * 2 * top_k;

  Softmax softmax = {-INFINITY, 0};
  for (uint e = lane; e < n_experts; e += kLanes) softmax.largest = fmax(softmax.largest, row[e]);
  softmax.largest = lanes_max(softmax.largest);
  for (uint e = lane; e < n_experts; e += kLanes) {
    softmax.total += precise::exp(row[e] - softmax.largest);
  }
  softmax.total = lanes_sum(softmax.total);
  const uint group_size = n_experts / args.n_groups;
  const uint groups = args.top_groups < args.n_groups
                          ? best_groups(row, bias, softmax, args, lane)
                          : 0xffffffffu;

  float sum = 0;
  Ranked last = {INFINITY, 0};
  for (uint k = 0; k < top_k; ++k) {
    // If only NaN is left, this still names a valid expert.
    Ranked best = {-INFINITY, n_experts - 1 - k};
    for (uint e = lane; e < n_experts; e += kLanes) {
      if ((groups >> (e / group_size) & 1) == 0) continue;
      const Ranked candidate = {worth_of(row, bias, e, softmax, args), e};
      if ((k == 0 || ranks_before(last, candidate)) && ranks_before(candidate, best)) {
        best = candidate;
      }
    }
    last = lanes_first(best);
    const float score = args.scores == 2 ? sparse_score(row, last, args, lane)
                                         : score_of(row[last.expert], softmax, args);
    sum += score;
    // The lane that stores a weight scales it at the end.
    if (lane == k % kLanes) {
      chosen[k] = float(last.expert);
      chosen[top_k + k] = args.has_expert_scales != 0 ? score * expert_scales[last.expert] : score;
    }
  }
  const float factor = args.normalize != 0 ? args.scale / sum : args.scale;
  for (uint k = lane; k < top_k; k += kLanes) chosen[top_k + k] *= factor;
}
