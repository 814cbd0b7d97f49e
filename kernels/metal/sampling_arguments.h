#pragma once

// Arguments of the sampling kernels; conventions as in arguments.h.

#include "kernel_arguments.h"

namespace metal_args {

using namespace kernel_args;

// Logits per chunk; maxima, sums and masses are stored per chunk: chunks = ceil(vocabulary,
// kChunk). A threadgroup takes kGroupChunks of them.
KERNEL_CONSTANT kChunk = 256;
KERNEL_CONSTANT kGroupChunks = 8;
// Logits per threadgroup of argmax_chunks.
KERNEL_CONSTANT kArgmaxChunk = 1024;

// All kernels read forge_sampling of forge.h and write forge_result, followed by int32 ids[max_top]
// and float logprobs[max_top] for each output. They run in this order:
//
// adjust_logits: adjusted [outputs, vocabulary],
//   uint32 occurrences [outputs, vocabulary] (zero before and after), logits, sampling,
//   int32 history, int32 bias_ids, bias_values, uint32 masks, n_outputs
// grid (max outputs); threads 512
//
// chunk_maxima: maxima [outputs, chunks], adjusted_maxima [outputs, chunks], logits, adjusted,
//   sampling, n_outputs
// grid (ceil(chunks, kGroupChunks), max outputs); threads 256
//
// fused_temperature_softmax: sums [outputs, chunks], uint64 masses [outputs, chunks], logits,
//   adjusted, maxima, adjusted_maxima, sampling, n_outputs
// grid (ceil(chunks, kGroupChunks), max outputs); threads 256
//
// sample_token: uint8 results, logits, adjusted, maxima, adjusted_maxima, sums,
//   uint64 masses (overwritten), sampling, n_outputs
// grid (max outputs); threads 512
//
// top_k_candidates, where max_top > 0: uint8 results, logits, maxima, sums,
//   next_logits [outputs, chunks], uint32 next_ids [outputs, chunks], sampling, n_outputs
// grid (max outputs); threads 512
//
// If every output of a run is plainly greedy (temperature 0, no forced token, no adjusted logits,
// n_top 0), two kernels replace all five:
//
// argmax_chunks: ArgmaxPartial partial [outputs, ceil(vocabulary, kArgmaxChunk)], logits, n_outputs
// grid (ceil(vocabulary, kArgmaxChunk), max outputs); threads 256
//
// argmax_token: uint8 results, ArgmaxPartial partial, n_outputs
// grid (max outputs); threads 256
struct SamplingArgs {
  uint32_t vocabulary;
  uint32_t max_top;
  uint32_t mask_words;
};

struct ArgmaxPartial {
  float value;   // the largest logit, ignoring NaN
  uint32_t id;   // its lowest id
  float sum;     // of exp(logit - value)
  uint32_t bad;  // 1 if a logit is NaN or +infinity
};

}  // namespace metal_args
