// Ends a step of a series: keeps its results, and copies the inputs of the next step, in which each
// sequence continues with the token just chosen. After the last step, or one that ended the series,
// the inputs become zeros: the launches of later steps then have no rows. Buffers and geometry:
// arguments.h.

#include "sampling.h"

kernel void next_step(device SeriesControl* control [[buffer(0)]], device u8* inputs [[buffer(1)]],
                      device int* history [[buffer(2)]], device const uint* results [[buffer(3)]],
                      device uint* all_results [[buffer(4)]],
                      constant NextStepArgs& args [[buffer(5)]],
                      uint thread_index [[thread_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]],
                      uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup uint partial[kLanes];
  const Place p = {thread_index, lane, simdgroup, n_simdgroups};
  const SeriesControl series = *control;
  const uint n_outputs = *(device const uint*)(inputs + args.n_outputs);

  device uint* kept = all_results + ulong(series.step) * series.n_outputs * args.result_words;
  for (uint i = thread_index; i < n_outputs * args.result_words; i += threads_of(p)) {
    kept[i] = results[i];
  }
  device const int* end_tokens = (device const int*)(control + 1);
  uint endings = series.ended != 0 || series.step + 1 >= series.n_steps ? 1 : 0;
  for (uint output = thread_index; output < n_outputs; output += threads_of(p)) {
    device const Result* result = (device const Result*)(results + output * args.result_words);
    if (result->flags != 0) endings = 1;
    for (uint i = 0; i < series.n_end_tokens; ++i) {
      if (result->token == end_tokens[i]) endings = 1;
    }
  }
  // Its barrier also separates the reads of the inputs and of the control from what follows.
  const bool has_ended = group_sum(endings, partial, p) != 0;

  const uint words = args.piece_bytes / sizeof(uint4);
  device const uint4* next =
      (device const uint4*)((device const u8*)control + series.pieces) + ulong(series.step) * words;
  for (uint i = thread_index; i < words; i += threads_of(p)) {
    ((device uint4*)inputs)[i] = has_ended ? uint4(0, 0, 0, 0) : next[i];
  }
  if (thread_index == 0) {
    control->step = series.step + 1;
    control->ended = has_ended ? 1 : 0;
  }
  if (has_ended) return;
  threadgroup_barrier(mem_flags::mem_device);
  device int* tokens = (device int*)(inputs + args.tokens);
  device const Sampling* sampling = (device const Sampling*)(inputs + args.sampling);
  for (uint output = thread_index; output < n_outputs; output += threads_of(p)) {
    const int token = ((device const Result*)(results + output * args.result_words))->token;
    tokens[output] = token;
    history[sampling[output].history_end - 1] = token;
  }
}
