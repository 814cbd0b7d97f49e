// Applies penalties, bias and mask to logits (csrc/forge.h, forge_sampling), for the outputs that
// ask for them.
//
//   logits, adjusted [outputs, vocabulary] F32: unchanged rows are not written
//   occurrences [outputs, vocabulary]: zero before and after
//   grid: a block an output; block: at most 1024 threads
//   moves: 8 bytes a logit
//
// Atomic additions count each token of the history at the token's id. The thread that then resets
// a count to zero applies the penalty. This takes one step for each history entry and no sorting.

#include "sampling.cuh"

DEVICE bool is_allowed(const u32* mask, u32 id) {
  return !mask || (mask[id / 32] >> (id % 32) & 1) != 0;
}

DEVICE float penalized(float logit, const Sampling& s, u32 count) {
  // A division by 1 is exact, and one call of it for both signs spills no register.
  const double scaled = logit > 0 ? logit : double(logit) * s.repeat_penalty;
  const double value = scaled / (logit > 0 ? s.repeat_penalty : 1.0f);
  return float(value - (s.presence_penalty + double(count) * s.frequency_penalty));
}

LARGE_KERNEL adjust_logits(AdjustLogits a) {
  wait_for_previous_kernel();
  const u32 output = blockIdx.x;
  if (output >= *a.n_outputs) return;
  const Sampling s = a.sampling[output];
  if (!adjusts(s)) return;
  const u64 begin = u64(output) * a.vocabulary;
  const float* from = a.logits + begin;
  float* to = a.adjusted + begin;
  u32* counts = a.occurrences + begin;
  const u32* mask = s.mask < 0 ? nullptr : a.masks + u64(s.mask) * a.mask_words;
  const u32 history_end = penalizes(s) ? s.history_end : s.history_begin;

  for (u32 i = threadIdx.x; i < a.vocabulary; i += blockDim.x) {
    to[i] = is_allowed(mask, i) ? from[i] : -FORGE_INFINITY;
  }
  for (u32 i = s.history_begin + threadIdx.x; i < history_end; i += blockDim.x) {
    atomicAdd(&counts[a.history[i]], 1u);
  }
  __syncthreads();
  for (u32 i = s.history_begin + threadIdx.x; i < history_end; i += blockDim.x) {
    const u32 id = u32(a.history[i]);
    const u32 count = atomicExch(&counts[id], 0u);
    if (count > 0 && is_allowed(mask, id)) to[id] = penalized(from[id], s, count);
  }
  __syncthreads();
  for (u32 i = s.bias_begin + threadIdx.x; i < s.bias_end; i += blockDim.x) {
    const u32 id = u32(a.bias_ids[i]);
    if (is_allowed(mask, id)) atomicAdd(&to[id], a.bias_values[i]);
  }
}

INSTANCE(adjust_logits)
