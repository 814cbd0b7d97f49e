// Ends a step of a series: keeps its results, and copies the inputs of the next step, in which each
// sequence continues with the token just chosen. After the last step, or one that ended the series,
// the inputs become zeros: the launches of later steps then have no rows.
//
//   grid: 1; block 256

#include "sampling.cuh"

KERNEL next_step(NextStep a) {
  wait_for_previous_kernel();
  SHARED(u32, ended, [1]);
  const SeriesControl series = *a.control;
  const u32 n_outputs = *reinterpret_cast<const u32*>(a.inputs + a.n_outputs);
  if (threadIdx.x == 0) ended[0] = series.ended || series.step + 1 >= series.n_steps;
  __syncthreads();

  u32* kept = a.all_results + u64(series.step) * series.n_outputs * a.result_words;
  for (u32 i = threadIdx.x; i < n_outputs * a.result_words; i += blockDim.x) kept[i] = a.results[i];
  const auto result_of_output = [&](u32 output) {
    return reinterpret_cast<const Result*>(a.results + output * a.result_words);
  };
  const i32* end_tokens = reinterpret_cast<const i32*>(a.control + 1);
  for (u32 output = threadIdx.x; output < n_outputs; output += blockDim.x) {
    const Result& result = *result_of_output(output);
    bool ends = result.flags != 0;
    for (u32 i = 0; i < series.n_end_tokens; ++i) ends |= result.token == end_tokens[i];
    if (ends) atomicAdd(&ended[0], 1u);
  }
  __syncthreads();

  const bool has_ended = ended[0] != 0;
  const u32 words = a.piece_bytes / sizeof(uint4);
  const uint4* next =
      reinterpret_cast<const uint4*>(reinterpret_cast<const u8*>(a.control) + series.pieces) +
      u64(series.step) * words;
  uint4* inputs = reinterpret_cast<uint4*>(a.inputs);
  for (u32 i = threadIdx.x; i < words; i += blockDim.x) {
    inputs[i] = has_ended ? make_uint4(0, 0, 0, 0) : next[i];
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    a.control->step = series.step + 1;
    a.control->ended = has_ended;
  }
  if (has_ended) return;
  i32* tokens = reinterpret_cast<i32*>(a.inputs + a.tokens);
  const Sampling* sampling = reinterpret_cast<const Sampling*>(a.inputs + a.sampling);
  for (u32 output = threadIdx.x; output < n_outputs; output += blockDim.x) {
    const i32 token = result_of_output(output)->token;
    tokens[output] = token;
    a.history[sampling[output].history_end - 1] = token;
  }
}

INSTANCE(next_step)
