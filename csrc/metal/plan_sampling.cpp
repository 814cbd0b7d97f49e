// Sampling. Kernels read the logits in chunks and keep the largest logit of each.

#include <algorithm>

#include "plan_builder.h"

namespace forge::metal {

using namespace metal_args;

bool is_greedy(const StepInputs& inputs) {
  return std::ranges::all_of(inputs.sampling, [](const forge_sampling& s) {
    return s.temperature == 0 && s.forced_token < 0 && s.repeat_penalty == 1 &&
           s.presence_penalty == 0 && s.frequency_penalty == 0 && s.bias_begin == s.bias_end &&
           s.mask < 0 && s.n_top == 0;
  });
}

void PlanBuilder::emit(const SampleOp& op) {
  if (greedy_) return emit_greedy(op);
  const uint32_t vocabulary = cols(op.logits), n_chunks = divide_up(vocabulary, kChunk);
  const uint32_t outputs = shape_.outputs;
  const Place logits = value(op.logits);
  const auto [adjusted, maxima, adjusted_maxima, sums, masses] =
      sampling_scratch(vocabulary, n_chunks);
  const Grid by_chunk{divide_up(n_chunks, kGroupChunks), outputs};
  const SamplingArgs args{
      .vocabulary = vocabulary, .max_top = op.max_top, .mask_words = inputs_.mask_words};

  launch("adjust_logits", "adjust_logits", {outputs}, {512},
         {adjusted, memory_.occurrences, logits, inputs_.sampling, inputs_.history,
          inputs_.bias_ids, inputs_.bias_values, inputs_.masks, inputs_.n_outputs},
         args);
  launch("chunk_maxima", "chunk_maxima", by_chunk, {256},
         {maxima, adjusted_maxima, logits, adjusted, inputs_.sampling, inputs_.n_outputs}, args);
  launch("fused_temperature_softmax", "fused_temperature_softmax", by_chunk, {256},
         {sums, masses, logits, adjusted, maxima, adjusted_maxima, inputs_.sampling,
          inputs_.n_outputs},
         args);
  launch("sample_token", "sample_token", {outputs}, {512},
         {memory_.results, logits, adjusted, maxima, adjusted_maxima, sums, masses,
          inputs_.sampling, inputs_.n_outputs},
         args);
  if (op.max_top == 0 || !shape_.reports_top) return;
  const uint64_t all_chunks = uint64_t{outputs} * n_chunks;
  const Place next_logits = scratch(all_chunks * sizeof(float));
  const Place next_ids = scratch(all_chunks * sizeof(uint32_t));
  launch("top_k_candidates", "top_k_candidates", {outputs}, {512},
         {memory_.results, logits, maxima, sums, next_logits, next_ids, inputs_.sampling,
          inputs_.n_outputs},
         args);
}

void PlanBuilder::emit_greedy(const SampleOp& op) {
  const uint32_t vocabulary = cols(op.logits), outputs = shape_.outputs;
  const uint32_t n_chunks = divide_up(vocabulary, kArgmaxChunk);
  const Place partial = scratch(uint64_t{outputs} * n_chunks * sizeof(ArgmaxPartial));
  const SamplingArgs args{
      .vocabulary = vocabulary, .max_top = op.max_top, .mask_words = inputs_.mask_words};
  launch("argmax_chunks", "argmax_chunks", {n_chunks, outputs}, {256},
         {partial, value(op.logits), inputs_.n_outputs}, args);
  launch("argmax_token", "argmax_token", {outputs}, {256},
         {memory_.results, partial, inputs_.n_outputs}, args);
}

}  // namespace forge::metal
