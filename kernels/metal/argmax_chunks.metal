// The first stage of the argmax, for runs of plainly greedy outputs. For each 1,024 logits: the
// largest, its lowest id, and the sum of exponentials for its log-probability. Buffers and
// geometry: arguments.h.
//
// A NaN is smaller than every number, and is reported.

#include "argmax.h"

[[kernel, max_total_threads_per_threadgroup(256)]] void argmax_chunks(
    device ArgmaxPartial* partial [[buffer(0)]], device const float* logits [[buffer(1)]],
    device const uint* n_outputs [[buffer(2)]], constant SamplingArgs& args [[buffer(3)]],
    uint2 at [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup ArgmaxPartial parts[kLanes];
  const uint vocabulary = args.vocabulary, output = at.y;
  if (output >= *n_outputs) return;
  const Place p = {thread_index, lane, simdgroup, n_simdgroups};
  device const float* row = logits + ulong(output) * vocabulary;
  const uint end = min(vocabulary, (at.x + 1) * kArgmaxChunk);
  ArgmaxPartial own = no_partial();
  for (uint i = at.x * kArgmaxChunk + thread_index; i < end; i += threads_of(p)) {
    const ArgmaxPartial one = {sane(row[i]), i, row[i] > -INFINITY ? 1.0f : 0.0f,
                               row[i] < INFINITY ? 0u : 1u};
    own = merged(own, one);
  }
  own = group_merged(own, parts, p);
  const uint n_chunks = (vocabulary + kArgmaxChunk - 1) / kArgmaxChunk;
  if (thread_index == 0) partial[ulong(output) * n_chunks + at.x] = own;
}
