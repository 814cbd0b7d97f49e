// Chooses top_k experts per token: the largest scores, ties to the lower expert. Scores are softmax
// probabilities or sigmoids of the router's logits. With `bias`, only the choice uses score + bias.
// Scores of sparsemixer (2) are described in csrc/common/operations.h.
// Of `n_groups` groups of experts, the best `top_groups` take part: those with the largest score,
// or, with `bias`, the largest sum of two (DeepSeek-AI, arXiv:2405.04434 and arXiv:2412.19437).
//
//   logits [tokens, n_experts] F32; out [tokens, 2 top_k] F32: expert numbers, then weights
//   bias, expert_scales [n_experts] F32 (may be null); n_groups at most 32
//   weights: score (relative to the sum of the chosen if `normalize`) * scale * expert_scales
//   grid: tokens / 4; block 128: a warp per token
//
// Each round finds the best expert after the previously chosen one in the order (larger value,
// lower expert), so no expert has to be marked as chosen. Without bias the value is the logit,
// which has the order of the scores.

#include "moe_arguments.h"
#include "warp.cuh"

struct Ranked {
  float worth;
  u32 expert;
};
DEVICE bool ranks_before(Ranked a, Ranked b) {
  return a.worth > b.worth || (a.worth == b.worth && a.expert < b.expert);
}

DEVICE Ranked warp_first(Ranked own) {
#pragma unroll
  for (u32 bits = 16; bits > 0; bits /= 2) {
    const Ranked other = {__shfl_xor_sync(kAllLanes, own.worth, bits),
                          __shfl_xor_sync(kAllLanes, own.expert, bits)};
    if (ranks_before(other, own)) own = other;
  }
  return own;
}

// The router's logits of one token.
struct Experts {
  const float* logits;
  const float* bias;
  u32 n, scores;
  float largest, total;  // of the softmax exponentials
};
DEVICE float score_of(const Experts& experts, u32 e) {
  const float logit = experts.logits[e];
  return experts.scores == 1 ? 1.0f / (1.0f + expf(-logit))
                             : expf(logit - experts.largest) / experts.total;
}
DEVICE float worth_of(const Experts& experts, u32 e) {
  return experts.bias ? score_of(experts, e) + experts.bias[e] : experts.logits[e];
}

// The score of sparsemixer of the best expert: among those that do not rank before it.
DEVICE float sparse_score(const Experts& experts, Ranked best, float threshold) {
  float total = 0;
  for (u32 e = lane_id(); e < experts.n; e += kWarp) {
    const float logit = experts.logits[e];
    const bool is_far = (best.worth - logit) / fmaxf(fabsf(logit), best.worth) > threshold;
    if (!is_far && !ranks_before({logit, e}, best)) total += expf(logit - best.worth);
  }
  return 1.0f / warp_sum(total);
}

// A bit for each group that takes part.
DEVICE u32 best_groups(const Experts& experts, u32 n_groups, u32 top_groups) {
  const u32 size = experts.n / n_groups;
  float first = -FORGE_INFINITY, second = -FORGE_INFINITY;
  for (u32 e = lane_id() * size; lane_id() < n_groups && e < (lane_id() + 1) * size; ++e) {
    const float worth = worth_of(experts, e);
    second = fmaxf(second, fminf(first, worth));
    first = fmaxf(first, worth);
  }
  const Ranked own = {experts.bias && size > 1 ? first + second : first, lane_id()};
  u32 before = 0;
  for (u32 g = 0; g < n_groups; ++g) {
    before += ranks_before({__shfl_sync(kAllLanes, own.worth, g), g}, own);
  }
  return __ballot_sync(kAllLanes, lane_id() < n_groups && before < top_groups);
}

KERNEL moe_route(MoeRoute a) {
  wait_for_previous_kernel();
  const u32 token = blockIdx.x * (blockDim.x / kWarp) + warp_id();
  if (token >= *a.n_tokens) return;
  const float* row = a.logits + u64(token) * a.n_experts;
  float* chosen = a.out + u64(token) * 2 * a.top_k;

  Experts experts = {row, a.has_bias ? a.bias : nullptr, a.n_experts, a.scores, -FORGE_INFINITY, 0};
  for (u32 e = lane_id(); e < a.n_experts; e += kWarp) {
    experts.largest = fmaxf(experts.largest, row[e]);
  }
  experts.largest = warp_max(experts.largest);
  for (u32 e = lane_id(); e < a.n_experts; e += kWarp) {
    experts.total += expf(row[e] - experts.largest);
  }
  experts.total = warp_sum(experts.total);
  const u32 group_size = a.n_experts / a.n_groups;
  const u32 groups =
      a.top_groups < a.n_groups ? best_groups(experts, a.n_groups, a.top_groups) : 0xffffffffu;

  float sum = 0;
  Ranked last = {FORGE_INFINITY, 0};
  for (u32 k = 0; k < a.top_k; ++k) {
    // If only NaN is left, this still names a valid expert.
    Ranked best = {-FORGE_INFINITY, a.n_experts - 1 - k};
    for (u32 e = lane_id(); e < a.n_experts; e += kWarp) {
      if (!(groups >> e / group_size & 1)) continue;
      const Ranked candidate = {worth_of(experts, e), e};
      if ((k == 0 || ranks_before(last, candidate)) && ranks_before(candidate, best)) {
        best = candidate;
      }
    }
    last = warp_first(best);
    const float score = a.scores == 2 ? sparse_score(experts, last, a.threshold)
                                      : score_of(experts, last.expert);
    sum += score;
    if (lane_id() == 0) {
      chosen[k] = float(last.expert);
      chosen[a.top_k + k] = a.has_expert_scales ? score * a.expert_scales[last.expert] : score;
    }
  }
  __syncwarp();
  const float factor = a.normalize ? a.scale / sum : a.scale;
  for (u32 k = lane_id(); k < a.top_k; k += kWarp) chosen[a.top_k + k] *= factor;
}

INSTANCE(moe_route)
