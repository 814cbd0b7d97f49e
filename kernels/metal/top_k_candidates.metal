// The n_top most probable tokens of each output with their log-probabilities, by the model's own
// logits, ties to the lowest id. Buffers and geometry: arguments.h; a threadgroup per output.
//
// Each chunk has a cursor: the logit of its best token that is not reported yet, and the lowest id
// of that token. A round takes the chunk whose cursor comes first, finds the token, and advances
// the cursor: n_top tokens take n_top rounds and read n_top chunks.

#include "sampling.h"

CONSTANT uint kNone = 0xffffffffu;

struct Cursor {
  float logit;
  uint chunk;
};
// NaN, the cursor of an exhausted chunk, comes last.
inline Cursor earlier(Cursor a, Cursor b) {
  if (a.chunk == kNone) return b;
  if (b.chunk == kNone) return a;
  return b.logit > a.logit || (b.logit == a.logit && b.chunk < a.chunk) ? b : a;
}
inline Cursor lanes_first(Cursor own) {
  for (ushort bits = 16; bits > 0; bits /= 2) {
    const Cursor other = {simd_shuffle_xor(own.logit, bits), simd_shuffle_xor(own.chunk, bits)};
    own = earlier(own, other);
  }
  return own;
}

// Takes the token at a chunk's cursor and advances the cursor. Called by a SIMD group.
inline uint take_token(device const float* row, uint vocabulary, uint chunk,
                       device float* next_logit, device uint* next_id, uint lane) {
  const float logit = *next_logit;
  const uint from = *next_id;
  uint taken = kNone, same = kNone;  // the lowest ids with this logit: the first, and the next
  float below = -INFINITY;
  uint n_below = 0;
  for (uint k = 0; k < kChunkRounds; ++k) {
    const uint id = chunk * kChunk + k * kLanes + lane;
    if (id >= vocabulary) break;
    if (row[id] == logit && id >= from) {
      same = taken == kNone ? same : min(same, id);
      taken = min(taken, id);
    }
    if (row[id] < logit) {
      below = fmax(below, row[id]);
      ++n_below;
    }
  }
  const uint first = simd_min(taken);
  const uint second = simd_min(taken == first ? same : taken);
  below = lanes_max(below);
  n_below = lanes_sum(n_below);
  simdgroup_barrier(mem_flags::mem_device);  // all lanes have read the cursor
  if (lane == 0) {
    *next_logit = second != kNone ? logit : n_below > 0 ? below : NAN;
    *next_id = second != kNone ? second : chunk * kChunk;
  }
  return first;
}

[[kernel, max_total_threads_per_threadgroup(512)]] void top_k_candidates(
    device u8* results [[buffer(0)]], device const float* logits [[buffer(1)]],
    device const float* maxima [[buffer(2)]], device const float* sums [[buffer(3)]],
    device float* next_logits [[buffer(4)]], device uint* next_ids [[buffer(5)]],
    device const Sampling* sampling [[buffer(6)]], device const uint* n_outputs [[buffer(7)]],
    constant SamplingArgs& args [[buffer(8)]], uint output [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float max_partial[kLanes];
  threadgroup float sum_partial[kLanes];
  threadgroup Cursor firsts[kLanes];
  if (output >= *n_outputs) return;
  const Place p = {thread_index, lane, simdgroup, n_simdgroups};
  const uint vocabulary = args.vocabulary, n_chunks = chunks_in(vocabulary);
  const uint n_top = min(sampling[output].n_top, vocabulary);
  device Result* result = result_of(results, output, args.max_top);
  if (n_top == 0 || result->flags == kLogitsNan) return;
  device const float* row = logits + ulong(output) * vocabulary;
  const ulong first = ulong(output) * n_chunks;
  device float* next_logit = next_logits + first;
  device uint* next_id = next_ids + first;

  float largest = -INFINITY, sum = 0;
  for (uint c = thread_index; c < n_chunks; c += threads_of(p)) {
    next_logit[c] = maxima[first + c];
    next_id[c] = c * kChunk;
    largest = fmax(largest, maxima[first + c]);
    sum += sums[first + c];
  }
  largest = group_max(largest, max_partial, p);
  const float log_sum = precise::log(group_sum(sum, sum_partial, p));

  device int* ids = (device int*)(result + 1);
  device float* logprobs = (device float*)(ids + args.max_top);
  threadgroup_barrier(mem_flags::mem_device);
  for (uint n = 0; n < n_top; ++n) {
    Cursor own = {-INFINITY, kNone};
    for (uint c = thread_index; c < n_chunks; c += threads_of(p)) {
      const Cursor candidate = {next_logit[c], c};
      if (candidate.logit == candidate.logit) own = earlier(own, candidate);
    }
    own = lanes_first(own);
    if (lane == 0) firsts[simdgroup] = own;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup == 0) {
      Cursor chosen = {-INFINITY, kNone};
      if (lane < n_simdgroups) chosen = firsts[lane];
      chosen = lanes_first(chosen);
      const uint id = take_token(row, vocabulary, chosen.chunk, next_logit + chosen.chunk,
                                 next_id + chosen.chunk, lane);
      if (lane == 0) {
        ids[n] = int(id);
        logprobs[n] = (chosen.logit - largest) - log_sum;
      }
    }
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  }
}
