// For each chunk of 256 logits: the sum of exp(logit - largest), for log-probabilities, and the
// mass (sampling.h) of the adjusted logits at the output's temperature, for drawing. Buffers and
// geometry: arguments.h; a SIMD group per chunk.
//
// Every threadgroup first reduces the maxima of the chunks to the maximum of the row. Masses are
// computed only for outputs that draw.

#include "sampling.h"

[[kernel, max_total_threads_per_threadgroup(256)]] void fused_temperature_softmax(
    device float* sums [[buffer(0)]], device ulong* masses [[buffer(1)]],
    device const float* logits [[buffer(2)]], device const float* adjusted [[buffer(3)]],
    device const float* maxima [[buffer(4)]], device const float* adjusted_maxima [[buffer(5)]],
    device const Sampling* sampling [[buffer(6)]], device const uint* n_outputs [[buffer(7)]],
    constant SamplingArgs& args [[buffer(8)]], uint2 at [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[kLanes];
  threadgroup float adjusted_partial[kLanes];
  const uint vocabulary = args.vocabulary, output = at.y, n_chunks = chunks_in(vocabulary);
  if (output >= *n_outputs) return;
  const Place p = {thread_index, lane, simdgroup, n_simdgroups};
  const Sampling s = sampling[output];
  const ulong first = ulong(output) * n_chunks;
  float largest = -INFINITY, adjusted_largest = -INFINITY;
  for (uint c = thread_index; c < n_chunks; c += threads_of(p)) {
    largest = fmax(largest, maxima[first + c]);
    adjusted_largest = fmax(adjusted_largest, adjusted_maxima[first + c]);
  }
  largest = group_max(largest, partial, p);
  adjusted_largest = group_max(adjusted_largest, adjusted_partial, p);

  const uint chunk = at.x * kBlockChunks + simdgroup;
  if (chunk >= n_chunks) return;
  device const float* row = logits + ulong(output) * vocabulary;
  device const float* chosen = chosen_row(s, logits, adjusted, output, vocabulary);
  const bool has_draw = draws(s) && s.forced_token < 0;
  float sum = 0;
  ulong mass = 0;
  for (uint k = 0; k < kChunkRounds; ++k) {
    const uint i = chunk * kChunk + k * kLanes + lane;
    if (i >= vocabulary) break;
    sum += precise::exp(row[i] - largest);
    if (has_draw && chosen[i] > -INFINITY) {
      mass += mass_of(share_of(chosen[i], adjusted_largest, s.temperature));
    }
  }
  sum = lanes_sum(sum);
  mass = lanes_sum(mass);
  if (lane != 0) return;
  sums[first + chunk] = sum;
  masses[first + chunk] = mass;
}
