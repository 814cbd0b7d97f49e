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

// Kernels read the logits in chunks and keep the largest logit of each.
void PlanBuilder::emit_sampling(const SampleOp& op) {
  const SamplingArgs args{
      .vocabulary = cols(op.logits), .max_top = op.max_top, .mask_words = inputs_.mask_words};
  const uint32_t outputs = shape_.outputs, n_chunks = divide_up(args.vocabulary, kChunk);
  const uint64_t all_chunks = uint64_t{outputs} * n_chunks;
  const uint64_t numbers = uint64_t{outputs} * args.vocabulary;
  const Place logits = value(op.logits);
  const Place adjusted = scratch(numbers * sizeof(float));
  const Place maxima = scratch(all_chunks * sizeof(float));
  const Place adjusted_maxima = scratch(all_chunks * sizeof(float));
  const Place sums = scratch(all_chunks * sizeof(float));
  const Place masses = scratch(all_chunks * sizeof(uint64_t));
  const Geometry by_chunk = chunk_geometry(args, outputs);
  const Geometry by_output{{outputs}, {512}};

  launch<AdjustLogits>(by_output,
                       {.adjusted = adjusted,
                        .occurrences = arrivals(numbers),
                        .logits = logits,
                        .sampling = inputs_.sampling,
                        .history = inputs_.history,
                        .bias_ids = inputs_.bias_ids,
                        .bias_values = inputs_.bias_values,
                        .masks = inputs_.masks,
                        .n_outputs = inputs_.n_outputs},
                       args);
  launch<ChunkMaxima>(by_chunk,
                      {.maxima = maxima,
                       .adjusted_maxima = adjusted_maxima,
                       .logits = logits,
                       .adjusted = adjusted,
                       .sampling = inputs_.sampling,
                       .n_outputs = inputs_.n_outputs},
                      args);
  launch<FusedTemperatureSoftmax>(by_chunk,
                                  {.sums = sums,
                                   .masses = masses,
                                   .logits = logits,
                                   .adjusted = adjusted,
                                   .maxima = maxima,
                                   .adjusted_maxima = adjusted_maxima,
                                   .sampling = inputs_.sampling,
                                   .n_outputs = inputs_.n_outputs},
                                  args);
  launch<SampleToken>(by_output,
                      {.results = memory_.results,
                       .logits = logits,
                       .adjusted = adjusted,
                       .maxima = maxima,
                       .adjusted_maxima = adjusted_maxima,
                       .sums = sums,
                       .masses = masses,
                       .sampling = inputs_.sampling,
                       .n_outputs = inputs_.n_outputs},
                      args);
  if (op.max_top == 0 || !shape_.reports_top) return;
  const Place next_logits = scratch(all_chunks * sizeof(float));
  const Place next_ids = scratch(all_chunks * sizeof(uint32_t));
  launch<TopKCandidates>(by_output,
                         {.results = memory_.results,
                          .logits = logits,
                          .maxima = maxima,
                          .sums = sums,
                          .next_logits = next_logits,
                          .next_ids = next_ids,
                          .sampling = inputs_.sampling,
                          .n_outputs = inputs_.n_outputs},
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
