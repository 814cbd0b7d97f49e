// The largest logit of each chunk of 256, with which later passes skip chunks. Buffers and
// geometry: arguments.h; a SIMD group per chunk.
//
// The maximum of a chunk that holds a NaN or +infinity is NaN. In the adjusted row NaN is ignored.

#include "sampling.h"

[[kernel, max_total_threads_per_threadgroup(256)]] void chunk_maxima(
    device float* maxima [[buffer(0)]], device float* adjusted_maxima [[buffer(1)]],
    device const float* logits [[buffer(2)]], device const float* adjusted [[buffer(3)]],
    device const Sampling* sampling [[buffer(4)]], device const uint* n_outputs [[buffer(5)]],
    constant SamplingArgs& args [[buffer(6)]], uint2 at [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint vocabulary = args.vocabulary, output = at.y, chunk = at.x * kBlockChunks + simdgroup;
  if (output >= *n_outputs || chunk >= chunks_in(vocabulary)) return;
  device const float* row = logits + ulong(output) * vocabulary;
  device const float* chosen = chosen_row(sampling[output], logits, adjusted, output, vocabulary);
  float largest = -INFINITY, adjusted_largest = -INFINITY;
  bool bad = false;
  for (uint k = 0; k < kChunkRounds; ++k) {
    const uint i = chunk * kChunk + k * kLanes + lane;
    if (i >= vocabulary) break;
    bad = bad || !(row[i] < INFINITY);
    largest = fmax(largest, row[i]);
    adjusted_largest = fmax(adjusted_largest, sane(chosen[i]));
  }
  largest = lanes_max(largest);
  adjusted_largest = lanes_max(adjusted_largest);
  const bool any_bad = lanes_ballot(bad) != 0;
  if (lane != 0) return;
  const ulong to = ulong(output) * chunks_in(vocabulary) + chunk;
  maxima[to] = any_bad ? NAN : largest;
  adjusted_maxima[to] = adjusted_largest;
}
