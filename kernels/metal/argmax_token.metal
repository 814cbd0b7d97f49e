// The second stage of the argmax: the chosen token of each output with its log-probability. Buffers
// and geometry: arguments.h; a threadgroup per output.

#include "argmax.h"

[[kernel, max_total_threads_per_threadgroup(256)]] void argmax_token(
    device u8* results [[buffer(0)]], device const ArgmaxPartial* partial [[buffer(1)]],
    device const uint* n_outputs [[buffer(2)]], constant SamplingArgs& args [[buffer(3)]],
    uint output [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup ArgmaxPartial parts[kLanes];
  if (output >= *n_outputs) return;
  const Place p = {thread_index, lane, simdgroup, n_simdgroups};
  const uint n_chunks = (args.vocabulary + kArgmaxChunk - 1) / kArgmaxChunk;
  ArgmaxPartial own = no_partial();
  for (uint c = thread_index; c < n_chunks; c += threads_of(p)) {
    own = merged(own, partial[ulong(output) * n_chunks + c]);
  }
  own = group_merged(own, parts, p);
  if (thread_index != 0) return;
  Result result = {int(own.id), 0u, -precise::log(own.sum), 0u};
  if (own.bad != 0 || !(own.value > -INFINITY)) {
    result.token = -1;
    result.flags = own.bad != 0 ? kLogitsNan : kNothingAllowed;
    result.logprob = 0.0f;
  }
  *result_of(results, output, args.max_top) = result;
}
