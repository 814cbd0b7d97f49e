#pragma once

// Arguments of the sampling kernels.

#include "kernel_arguments.h"

namespace kernel_args {

// Logits per chunk; maxima, sums and masses are stored per chunk: chunks = ceil(vocabulary,
// kChunk). A block takes kBlockChunks of them.
KERNEL_CONSTANT kChunk = 256;
KERNEL_CONSTANT kBlockChunks = 8;

struct SamplingArgs {
  u32 vocabulary;
  u32 max_top;
  u32 mask_words;
};

// The parameters of sampling of one output: forge_sampling of csrc/forge.h, which describes the
// fields.
struct Sampling {
  float temperature;
  u32 top_k;
  float top_p;
  float min_p;
  float repeat_penalty;
  float presence_penalty;
  float frequency_penalty;
  i32 forced_token;
  u32 seed_low;
  u32 seed_high;
  u32 stream;
  u32 position;
  u32 history_begin;
  u32 history_end;
  u32 bias_begin;
  u32 bias_end;
  i32 mask;
  u32 n_top;
};

// All kernels read the parameters of each output and write forge_result, followed by i32
// ids[max_top] and float logprobs[max_top] for each output. Metal's run in this order; CUDA has
// kernels of its own (cuda_arguments.h) for all but the last.

// adjusted is [outputs, vocabulary]; so is occurrences, which is zero before and after.
KERNEL_ARGUMENTS(AdjustLogits, adjust_logits, SamplingArgs,
                 WRITES(float) adjusted; WRITES(u32) occurrences; READS(float) logits;
                 READS(Sampling) sampling; READS(i32) history; READS(i32) bias_ids;
                 READS(float) bias_values; READS(u32) masks; READS(u32) n_outputs;)

// maxima and adjusted_maxima are [outputs, chunks].
KERNEL_ARGUMENTS(ChunkMaxima, chunk_maxima, SamplingArgs,
                 WRITES(float) maxima; WRITES(float) adjusted_maxima; READS(float) logits;
                 READS(float) adjusted; READS(Sampling) sampling; READS(u32) n_outputs;)

// sums and masses are [outputs, chunks].
KERNEL_ARGUMENTS(FusedTemperatureSoftmax, fused_temperature_softmax, SamplingArgs,
                 WRITES(float) sums; WRITES(u64) masses; READS(float) logits; READS(float) adjusted;
                 READS(float) maxima; READS(float) adjusted_maxima; READS(Sampling) sampling;
                 READS(u32) n_outputs;)

// Overwrites masses.
KERNEL_ARGUMENTS(SampleToken, sample_token, SamplingArgs,
                 WRITES(u8) results; READS(float) logits; READS(float) adjusted;
                 READS(float) maxima; READS(float) adjusted_maxima; READS(float) sums;
                 WRITES(u64) masses; READS(Sampling) sampling; READS(u32) n_outputs;)

// Launched if max_top > 0. next_logits and next_ids are [outputs, chunks]. sums: on CUDA relative
// to the largest logit of the chunk, on Metal to that of the row.
KERNEL_ARGUMENTS(TopKCandidates, top_k_candidates, SamplingArgs,
                 WRITES(u8) results; READS(float) logits; READS(float) maxima; READS(float) sums;
                 WRITES(float) next_logits; WRITES(u32) next_ids; READS(Sampling) sampling;
                 READS(u32) n_outputs;)

// Controls the steps of a series. It is followed by the end tokens and, from `pieces` bytes on, by
// the inputs (csrc/gpu/input_layout.h) of the second step, the third, ..., which are complete but
// for the chosen tokens.
struct SeriesControl {
  u32 step;   // that runs
  u32 ended;  // 1 after a step that chose an end token or no token
  u32 n_steps;
  u32 n_end_tokens;
  u32 n_outputs;
  u32 pieces;
};

// Launched after the sampling of each step of a series. inputs [piece_bytes]: of the step that
// runs. history: as in sampling. results [n_outputs, result_words]: of the step that has run;
// all_results: of all steps.
struct NextStepArgs {
  u32 piece_bytes;  // a multiple of 16
  u32 result_words;
  u32 n_outputs;  // this and the next: bytes from the start of the inputs
  u32 tokens;
  u32 sampling;
};
KERNEL_ARGUMENTS(NextStep, next_step, NextStepArgs,
                 WRITES(SeriesControl) control; WRITES(u8) inputs; WRITES(i32) history;
                 READS(u32) results; WRITES(u32) all_results;)

}  // namespace kernel_args
