// Sampling; plainly greedy runs have kernels of their own.

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
  emit_sampling(op);
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
