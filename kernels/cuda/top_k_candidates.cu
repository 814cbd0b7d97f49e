// The n_top most probable tokens of each output with their log-probabilities, by the model's own
// logits, ties to the lowest id.
//
//   logits [outputs, vocabulary]; maxima, sums [outputs, chunks] of summarize_logits; next_logits,
//   next_ids [outputs, chunks] are scratch
//   results: as in summarize_logits
//   grid: a block per output; block 1024 (whole warps)
//
// Each chunk has a cursor: the logit of its best token that is not reported yet, and the lowest id
// of that token. A round takes the chunk whose cursor comes first, finds the token, and advances
// the cursor: n_top tokens take n_top rounds and read n_top chunks.

#include "sampling.cuh"

constexpr u32 kNone = 0xffffffffu;

struct Cursor {
  float logit;
  u32 chunk;
};
// NaN, the cursor of an exhausted chunk, comes last.
DEVICE Cursor earlier(Cursor a, Cursor b) {
  if (a.chunk == kNone) return b;
  if (b.chunk == kNone) return a;
  return b.logit > a.logit || (b.logit == a.logit && b.chunk < a.chunk) ? b : a;
}
DEVICE Cursor warp_first(Cursor own) {
#pragma unroll
  for (u32 bits = 16; bits > 0; bits /= 2) {
    own = earlier(own, {__shfl_xor_sync(kAllLanes, own.logit, bits),
                        __shfl_xor_sync(kAllLanes, own.chunk, bits)});
  }
  return own;
}
DEVICE u32 warp_lowest(u32 x) {
#pragma unroll
  for (u32 bits = 16; bits > 0; bits /= 2) x = min(x, __shfl_xor_sync(kAllLanes, x, bits));
  return x;
}

// Takes the token at a chunk's cursor and advances the cursor. Called by a whole warp.
DEVICE u32 take_token(const float* row, u32 vocabulary, u32 chunk, float* next_logit,
                      u32* next_id) {
  const float logit = *next_logit;
  const u32 from = *next_id;
  u32 taken = kNone, same = kNone;  // the lowest ids with this logit: the first, and the next
  float below = -FORGE_INFINITY;
  u32 n_below = 0;
  for (u32 k = 0; k < kChunkRounds; ++k) {
    const u32 id = chunk * kChunk + k * kWarp + lane_id();
    if (id >= vocabulary) break;
    if (row[id] == logit && id >= from) {
      same = taken == kNone ? same : min(same, id);
      taken = min(taken, id);
    }
    if (row[id] < logit) {
      below = fmaxf(below, row[id]);
      ++n_below;
    }
  }
  const u32 first = warp_lowest(taken);
  const u32 second = warp_lowest(taken == first ? same : taken);
  below = warp_max(below);
  n_below = warp_sum(n_below);
  __syncwarp();  // all lanes have read the cursor
  if (lane_id() == 0) {
    const float exhausted = __uint_as_float(0x7fffffffu);
    *next_logit = second != kNone ? logit : n_below > 0 ? below : exhausted;
    *next_id = second != kNone ? second : chunk * kChunk;
  }
  return first;
}

LARGE_KERNEL top_k_candidates(TopKCandidates a) {
  wait_for_previous_kernel();
  SHARED(float, max_partial, [kWarp]);
  SHARED(double, sum_partial, [kWarp]);
  SHARED(Cursor, firsts, [kWarp]);
  const u32 output = blockIdx.x;
  if (output >= *a.n_outputs) return;
  const u32 n_top = min(a.sampling[output].n_top, a.vocabulary), n_chunks = chunks_in(a.vocabulary);
  Result* result = result_of(a.results, output, a.max_top);
  if (n_top == 0 || result->flags == kLogitsNan) return;
  const float* row = a.logits + u64(output) * a.vocabulary;
  const u64 first = u64(output) * n_chunks;
  float* next_logit = a.next_logits + first;
  u32* next_id = a.next_ids + first;

  const double normalizer = log_sum_exp(a.maxima + first, a.sums + first, n_chunks, max_partial,
                                        sum_partial, [&](u32 chunk) {
                                          next_logit[chunk] = a.maxima[first + chunk];
                                          next_id[chunk] = chunk * kChunk;
                                        });

  i32* ids = reinterpret_cast<i32*>(result + 1);
  float* logprobs = reinterpret_cast<float*>(ids + a.max_top);
  for (u32 n = 0; n < n_top; ++n) {
    Cursor own = {-FORGE_INFINITY, kNone};
    for (u32 c = threadIdx.x; c < n_chunks; c += blockDim.x) {
      if (next_logit[c] == next_logit[c]) own = earlier(own, {next_logit[c], c});
    }
    own = warp_first(own);
    if (lane_id() == 0) firsts[warp_id()] = own;
    __syncthreads();
    if (warp_id() == 0) {
      const u32 n_warps = blockDim.x / kWarp;
      const Cursor none = {-FORGE_INFINITY, kNone};
      const Cursor chosen = warp_first(lane_id() < n_warps ? firsts[lane_id()] : none);
      const u32 id = take_token(row, a.vocabulary, chosen.chunk, next_logit + chosen.chunk,
                                next_id + chosen.chunk);
      if (lane_id() == 0) {
        ids[n] = i32(id);
        logprobs[n] = float(chosen.logit - normalizer);
      }
    }
    __syncthreads();
  }
}

INSTANCE(top_k_candidates)
