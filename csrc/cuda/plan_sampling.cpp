// Sampling. Kernels read the logits in chunks and keep the largest logit of each.

#include "plan_builder.h"

namespace forge::cuda {

namespace {

// Logits of a chunk, and chunks of a block.
constexpr uint32_t kChunk = 256;
constexpr uint32_t kBlockChunks = 8;

}  // namespace

void PlanBuilder::emit(const SampleOp& op) {
  const uint32_t vocabulary = cols(op.logits), n_chunks = divide_up(vocabulary, kChunk);
  const uint32_t outputs = shape_.outputs;
  const DevicePointer logits = value(op.logits);
  const auto [adjusted, maxima, adjusted_maxima, sums, masses] =
      sampling_scratch(vocabulary, n_chunks);
  const Grid by_chunk{divide_up(n_chunks, kBlockChunks), outputs};

  launch("adjust_logits.cu", "adjust_logits", {outputs}, 1024, 0, adjusted, memory_.occurrences,
         logits, inputs_.sampling, inputs_.history, inputs_.bias_ids, inputs_.bias_values,
         inputs_.masks, inputs_.mask_words, inputs_.n_outputs, vocabulary);
  launch("chunk_maxima.cu", "chunk_maxima", by_chunk, 256, 0, maxima, adjusted_maxima, logits,
         adjusted, inputs_.sampling, inputs_.n_outputs, vocabulary);
  launch("fused_temperature_softmax.cu", "fused_temperature_softmax", by_chunk, 256, 0, sums,
         masses, logits, adjusted, maxima, adjusted_maxima, inputs_.sampling, inputs_.n_outputs,
         vocabulary);
  launch("sample_token.cu", "sample_token", {outputs}, 1024, 0, memory_.results, op.max_top, logits,
         adjusted, maxima, adjusted_maxima, sums, masses, inputs_.sampling, inputs_.n_outputs,
         vocabulary);
  if (op.max_top == 0 || !shape_.reports_top) return;
  const uint64_t all_chunks = uint64_t{outputs} * n_chunks;
  const DevicePointer next_logits = scratch(all_chunks * sizeof(float));
  const DevicePointer next_ids = scratch(all_chunks * sizeof(uint32_t));
  launch("top_k_candidates.cu", "top_k_candidates", {outputs}, 1024, 0, memory_.results, op.max_top,
         logits, maxima, sums, next_logits, next_ids, inputs_.sampling, inputs_.n_outputs,
         vocabulary);
}

}  // namespace forge::cuda
