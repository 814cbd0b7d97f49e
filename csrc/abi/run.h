/* Running a step: its packed inputs, how tokens are chosen, its results. */
#ifndef FORGE_ABI_RUN_H
#define FORGE_ABI_RUN_H

#include "base.h"

/* The input block is this header, then the arrays below in order, without padding. */
typedef struct {
  uint32_t n_tokens;
  uint32_t n_outputs;
  uint32_t n_sequences;
  uint32_t n_pages;    /* entries of each sequence's page table */
  uint32_t n_history;  /* entries of history */
  uint32_t n_bias;     /* entries of bias_ids and bias_values */
  uint32_t mask_words; /* words of a mask: 0, or ceil(vocabulary / 32) */
  uint32_t n_masks;
  uint32_t n_steps;      /* how often the step runs, from 1 */
  uint32_t n_end_tokens; /* entries of end_tokens */
  /* int32_t  tokens[n_tokens]                                                                  */
  /* int32_t  positions[n_tokens]      position of the token in its sequence, from 0            */
  /* int32_t  sequences[n_tokens]      which page table the token uses                          */
  /* int32_t  page_tables[n_sequences][n_pages]                                                 */
  /* int32_t  slots[n_sequences]       where the sequence's recurrent state is                  */
  /* int32_t  output_rows[n_outputs]   which token's row becomes the output                     */
  /* forge_sampling sampling[n_outputs]                                                         */
  /* int32_t  history[n_history]       token ids that penalties look at                         */
  /* int32_t  bias_ids[n_bias]                                                                  */
  /* float    bias_values[n_bias]                                                               */
  /* int32_t  end_tokens[n_end_tokens] which tokens end the run; none where n_steps is 1        */
  /* uint32_t history_sizes[n_outputs] the most history an output keeps from step to step       */
  /* uint32_t masks[n_masks][mask_words]   bit i of word w allows token 32 w + i                */
} forge_step_header;

/*
 * Where n_steps is above 1, the step runs several times, each time on the tokens that the time
 * before chose: tokens[i] becomes the token of output i, which also joins the end of that output's
 * history (whose last history_sizes[i] entries are kept), and both positions go up by 1. This needs
 * as many sequences as tokens and outputs, sequences[i] == output_rows[i] == i, page tables that
 * hold all the positions, and neither masks nor forced tokens. The run ends early behind a step in
 * which any output chose an end token, or none.
 */

/*
 * A step that has recurrent state takes the tokens of a sequence one after another, without a gap
 * in their rows or positions; no two sequences have the same slot. A sequence whose tokens begin at
 * position 0 begins with a state of zeros, whatever its slot holds; any other goes on from what its
 * slot holds, which is for the caller to have been made from the tokens before. A step without
 * recurrent state does not look at slots.
 */

/*
 * How one output's token is chosen, in this order: repetition penalty, presence and frequency
 * penalties, bias, mask, temperature, top_k, top_p, min_p, draw. The draw is Philox4x32-10 with key
 * (seed) and counter (position, stream), so it depends on nothing else in the step.
 */
typedef struct {
  float temperature;       /* 0: the largest logit, the lowest id on ties */
  uint32_t top_k;          /* 0: off; ties to the lowest id */
  float top_p;             /* 1: off; the token that crosses is kept */
  float min_p;             /* 0: off; relative to the most probable token */
  float repeat_penalty;    /* 1: off; divides positive logits, multiplies negative ones */
  float presence_penalty;  /* 0: off */
  float frequency_penalty; /* 0: off; times the number of occurrences */
  int32_t forced_token;    /* >= 0: choose this one, and report its log-probability */
  uint32_t seed_low;
  uint32_t seed_high;
  uint32_t stream;
  uint32_t position;
  uint32_t history_begin; /* slice of history */
  uint32_t history_end;
  uint32_t bias_begin; /* slice of bias */
  uint32_t bias_end;
  int32_t mask;   /* index of a mask, or -1 */
  uint32_t n_top; /* how many of the most probable tokens to report, at most max_top */
} forge_sampling;

enum {
  FORGE_LOGITS_NAN = 1,      /* flag: a logit was NaN or +infinity; token is -1 */
  FORGE_NOTHING_ALLOWED = 2, /* flag: the mask and bias left no token; token is -1 */
  FORGE_NOT_RUN = 4          /* flag: the run ended before this step; token is -1 */
};

/*
 * The result block is, for each output of each step, this header, then int32_t ids[max_top] and
 * float logprobs[max_top]. Log-probabilities are natural, of the model's own distribution: before
 * penalties, bias, mask, temperature and truncation.
 */
typedef struct {
  int32_t token;
  uint32_t flags;
  float logprob;
  uint32_t n_top;
} forge_result;

/* What the caller may change while a run is going on, from another thread, by atomic stores. */
typedef struct {
  /*
   * Not 0: the run returns FORGE_CANCELLED early; its KV pages are undefined from its first
   * position, and so are the slots of its sequences.
   */
  int32_t stop;
  /*
   * 0: the masks of the input block are complete. Else they are still being written, and the run
   * waits for them before it samples, for at most this many milliseconds; past those it fails.
   */
  int32_t masks_pending;
} forge_step_control;

/*
 * Runs the step n_steps times and returns when the results are in `results`. `control` may be null.
 */
FORGE_API forge_status forge_step_run(uint32_t step, const void *inputs, uint64_t input_bytes,
                                      void *results, uint64_t result_bytes,
                                      const forge_step_control *control);

/*
 * What the last run that succeeded took inside this library; what a caller measures beyond it is
 * its own.
 */
FORGE_API forge_status forge_step_time(uint32_t step, uint64_t *nanoseconds);

/* Marks a value as readable after a run. To be called before forge_step_end. */
FORGE_API forge_status forge_step_keep(uint32_t step, uint32_t value);

/* Copies rows of a kept value of the last step of the last run into out[n_rows, cols]. */
FORGE_API forge_status forge_step_read(uint32_t step, uint32_t value, uint64_t first_row,
                                       uint64_t n_rows, float *out, uint64_t bytes);

#endif
