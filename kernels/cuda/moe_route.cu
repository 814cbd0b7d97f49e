// Chooses top_k experts a token: those with the largest router logits, ties to the lower expert,
// with their softmax probabilities.
//
//   logits [tokens, n_experts] F32; out [tokens, 2 top_k] F32: expert numbers, then weights
//   weights: probability (relative to the chosen ones when `normalize`) * scale
//   grid: tokens / 4; block 128: a warp a token
//
// Each round finds the best expert that comes after the last chosen one in the order (larger logit,
// lower expert), so that nothing needs to be marked as taken.

#include "warp.cuh"

struct Ranked {
  float logit;
  u32 expert;
};
DEVICE bool ranks_before(Ranked a, Ranked b) {
  return a.logit > b.logit || (a.logit == b.logit && a.expert < b.expert);
}

DEVICE Ranked warp_first(Ranked own) {
#pragma unroll
  for (u32 bits = 16; bits > 0; bits /= 2) {
    const Ranked other = {__shfl_xor_sync(kAllLanes, own.logit, bits),
                          __shfl_xor_sync(kAllLanes, own.expert, bits)};
    if (ranks_before(other, own)) own = other;
  }
  return own;
}

KERNEL moe_route(float* out, const float* logits, const u32* n_tokens, u32 n_experts, u32 top_k,
                 u32 normalize, float scale) {
  wait_for_previous_kernel();
  const u32 token = blockIdx.x * (blockDim.x / kWarp) + warp_id();
  if (token >= *n_tokens) return;
  const float* row = logits + u64(token) * n_experts;
  float* experts = out + u64(token) * 2 * top_k;

  float largest = -FORGE_INFINITY;
  for (u32 e = lane_id(); e < n_experts; e += kWarp) largest = fmaxf(largest, row[e]);
  largest = warp_max(largest);
  float total = 0;
  for (u32 e = lane_id(); e < n_experts; e += kWarp) total += expf(row[e] - largest);
  total = warp_sum(total);

  float chosen = 0;
  Ranked last = {FORGE_INFINITY, 0};
  for (u32 k = 0; k < top_k; ++k) {
    // Should all that is left be NaN, some expert is still a valid one.
    Ranked best = {-FORGE_INFINITY, n_experts - 1 - k};
    for (u32 e = lane_id(); e < n_experts; e += kWarp) {
      const Ranked candidate = {row[e], e};
      if ((k == 0 || ranks_before(last, candidate)) && ranks_before(candidate, best)) {
        best = candidate;
      }
    }
    last = warp_first(best);
    const float probability = expf(last.logit - largest);
    chosen += probability;
    if (lane_id() == 0) {
      experts[k] = float(last.expert);
      experts[top_k + k] = probability;
    }
  }
  __syncwarp();
  const float factor = scale / (normalize ? chosen : total);
  for (u32 k = lane_id(); k < top_k; k += kWarp) experts[top_k + k] *= factor;
}

INSTANCE(moe_route)
