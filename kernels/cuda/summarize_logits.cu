// Applies penalties, bias and mask to the logits of outputs that ask for them, and finds the best
// token. Chooses the token of outputs that do not draw it (csrc/forge.h, forge_sampling).
//
//   logits [outputs, vocabulary]; adjusted: written only for rows that are adjusted and drawn
//   maxima, sums [outputs, chunks]: of the model's logits, the largest of each chunk, and the sum
//   of exp(logit - largest); bests: the best rank, by adjusted logits (sampling.cuh)
//   histograms: set to 0 for share_histogram
//   results: forge_result of each output, followed by ids[max_top] and logprobs[max_top]
//   grid: (chunks / 8, outputs); block 256: a warp per chunk
//   moves: 4 bytes a logit, 8 where they are adjusted
//
// A block counts the tokens of the history that are its own in shared memory.

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

// Adjusts the logits of the block, of which this thread has `logits`, in place.
DEVICE void adjust(const SummarizeLogits& a, const Sampling& s, float* logits) {
  SHARED(u32, counts, [kBlockLogits]);
  SHARED(float, values, [kBlockLogits]);
  const u32 begin = blockIdx.x * kBlockLogits, own = warp_id() * kChunk + lane_id();
  const u32* mask = s.mask < 0 ? nullptr : a.masks + u64(s.mask) * a.mask_words;
#pragma unroll
  for (u32 k = 0; k < kChunkRounds; ++k) {
    counts[own + k * kWarp] = 0;
    values[own + k * kWarp] = logits[k];
  }
  __syncthreads();
  const u32 history_end = penalizes(s) ? s.history_end : s.history_begin;
  for (u32 i = s.history_begin + threadIdx.x; i < history_end; i += blockDim.x) {
    const u32 at = u32(a.history[i]) - begin;
    if (at < kBlockLogits) atomicAdd(&counts[at], 1u);
  }
  __syncthreads();
#pragma unroll 1
  for (u32 i = threadIdx.x; i < kBlockLogits && begin + i < a.vocabulary; i += blockDim.x) {
    if (!is_allowed(mask, begin + i)) {
      values[i] = -FORGE_INFINITY;
    } else if (counts[i] > 0) {
      values[i] = penalized(values[i], s, counts[i]);
    }
  }
  __syncthreads();
  // A token may have several biases: one thread adds them up. Atomic additions of floats in shared
  // memory would be loops.
  for (u32 i = s.bias_begin; i < s.bias_end; ++i) {
    const u32 id = u32(a.bias_ids[i]), at = id - begin;
    if (at >= kBlockLogits || at % blockDim.x != threadIdx.x) continue;
    if (is_allowed(mask, id)) values[at] += a.bias_values[i];
  }
  __syncthreads();
#pragma unroll
  for (u32 k = 0; k < kChunkRounds; ++k) logits[k] = values[own + k * kWarp];
}

// Finds the best token of a row from those of its chunks, and writes what does not depend on a
// draw.
DEVICE void finish_row(const SummarizeLogits& a, const Sampling& s, u32 output) {
  SHARED(u64, best_partial, [kWarp]);
  SHARED(float, max_partial, [kWarp]);
  SHARED(double, sum_partial, [kWarp]);
  const u32 n_chunks = chunks_in(a.vocabulary);
  const u64 first = u64(output) * n_chunks;
  u64 best = 0;
  const double normalizer =
      log_sum_exp(a.maxima + first, a.sums + first, n_chunks, max_partial, sum_partial,
                  [&](u32 chunk) { best = max(best, a.bests[first + chunk]); });
  best = block_largest(best, best_partial);
  if (threadIdx.x != 0) return;
  Result* result = result_of(a.results, output, a.max_top);
  if (best == kBadRank) {
    *result = {-1, kLogitsNan, 0.0f, 0};
    a.rows[output].is_drawn = 0;
    return;
  }
  const float largest = logit_of(best);
  const i32 candidate = largest > -FORGE_INFINITY ? i32(id_of(best)) : -1;
  const i32 token = s.forced_token >= 0 ? s.forced_token : candidate;
  float logprob = 0;
  if (token >= 0) {
    const bool is_adjusted = s.forced_token >= 0 || adjusts(s);
    const u64 at = u64(output) * a.vocabulary + u32(token);
    logprob = float((is_adjusted ? a.logits[at] : largest) - normalizer);
  }
  *result = {token, token < 0 ? kNothingAllowed : 0, logprob, s.n_top};
  a.rows[output] = {draws(s) && token >= 0 ? 1u : 0u, largest, normalizer, 0, 0};
}

KERNEL summarize_logits(SummarizeLogits a) {
  wait_for_previous_kernel();
  const u32 output = blockIdx.y, chunk = own_chunk();
  const u32 first = chunk * kChunk + lane_id();
  const u64 row = u64(output) * a.vocabulary;
  // The row is in flight together with the number of outputs; `logits` has room for the grid.
  const u32 n_outputs = load_now(a.n_outputs);
  float logits[kChunkRounds];
#pragma unroll
  for (u32 k = 0; k < kChunkRounds; ++k) {
    logits[k] = load_now(a.logits + row + min(first + k * kWarp, a.vocabulary - 1));
  }
  if (output >= n_outputs) {
    if (blockIdx.x == 0 && threadIdx.x == 0) a.rows[output].is_drawn = 0;
    return;
  }
  const Sampling s = a.sampling[output];

  float largest = -FORGE_INFINITY;
  bool bad = false;
#pragma unroll
  for (u32 k = 0; k < kChunkRounds; ++k) {
    if (first + k * kWarp >= a.vocabulary) logits[k] = -FORGE_INFINITY;
    bad = bad || !(logits[k] < FORGE_INFINITY);
    largest = fmaxf(largest, logits[k]);
  }
  largest = warp_max(largest);
  float sum = 0;
  if (largest > -FORGE_INFINITY) {
#pragma unroll
    for (u32 k = 0; k < kChunkRounds; ++k) sum += expf(logits[k] - largest);
  }
  sum = warp_sum(sum);

  if (adjusts(s)) adjust(a, s, logits);
  u64 best = 0;
#pragma unroll
  for (u32 k = 0; k < kChunkRounds; ++k) {
    const u32 id = first + k * kWarp;
    if (id >= a.vocabulary) break;
    if (adjusts(s) && draws(s)) a.adjusted[row + id] = logits[k];
    best = max(best, rank_of(sane(logits[k]), id));
  }
  best = warp_largest(best);
  const bool any_bad = __ballot_sync(kAllLanes, bad) != 0;
  if (lane_id() == 0 && chunk < chunks_in(a.vocabulary)) {
    const u64 at = u64(output) * chunks_in(a.vocabulary) + chunk;
    a.maxima[at] = largest;
    a.sums[at] = sum;
    a.bests[at] = any_bad ? kBadRank : best;
  }
  if (draws(s)) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < kBuckets; i += gridDim.x * blockDim.x) {
      a.histograms[u64(output) * kBuckets + i] = 0;
    }
  }
  if (is_last_arrival(a.arrivals + output, gridDim.x)) finish_row(a, s, output);
}

INSTANCE(summarize_logits)
