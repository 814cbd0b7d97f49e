/* Running a step: its packed inputs, the choice of tokens, its results. */
#ifndef FORGE_ABI_RUN_H
#define FORGE_ABI_RUN_H

#include "base.h"

/* Masks of attention. */
enum {
  FORGE_MASK_NONE = 0,
  FORGE_MASK_BITS = 1,  /* bit i % 32 of word i / 32 makes position i visible */
  FORGE_MASK_FLOATS = 2 /* added to the scores; -infinity hides a position */
};

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
  uint32_t n_steps;      /* number of steps to run, from 1 */
  uint32_t n_end_tokens; /* entries of end_tokens */
  uint32_t attention_mask;       /* one of FORGE_MASK_ */
  uint32_t attention_mask_heads; /* 1, or the query heads of the attention that it masks; 0: none */
  uint32_t attention_mask_cols;  /* positions that it covers, from 0; 0: none */
  uint32_t n_adapters;           /* of the lora operations of the step, if it has any */
  uint32_t n_parents;            /* 0, or n_tokens for a step with a tree of tokens */
  /* int32_t  tokens[n_tokens]                                                                  */
  /* int32_t  positions[n_tokens]      position of the token in its sequence, from 0            */
  /* int32_t  sequences[n_tokens]      index of the page table of the token                      */
  /* int32_t  parents[n_parents]       row of the token before each; -1: not in the step        */
  /* int32_t  page_tables[n_sequences][n_pages]                                                 */
  /* int32_t  slots[n_sequences]       slot of the recurrent state of the sequence               */
  /* int32_t  key_lengths[n_sequences] positions that attention without causality sees           */
  /* float    adapter_scales[n_sequences][n_adapters] 0: the sequence does not use the adapter   */
  /* int32_t  output_rows[n_outputs]   token whose row becomes the output                        */
  /* forge_sampling sampling[n_outputs]                                                         */
  /* int32_t  history[n_history]       token ids for penalties                                   */
  /* int32_t  bias_ids[n_bias]                                                                  */
  /* float    bias_values[n_bias]                                                               */
  /* int32_t  end_tokens[n_end_tokens] tokens that end the run; none if n_steps is 1             */
  /* uint32_t history_sizes[n_outputs] maximum history of an output from step to step            */
  /* uint32_t masks[n_masks][mask_words]   bit i of word w allows token 32 w + i                */
  /* uint32_t attention_masks[n_tokens][attention_mask_heads][cols as bits in words, or floats] */
} forge_step_header;

/*
 * An attention mask narrows what masked attention of the step sees: positions are visible within
 * the limits of causality or key_lengths, and of the window. It covers every visible position. A
 * token without visible positions gets zeros. Attention that is not recorded as masked ignores it.
 */

/*
 * With parents, a step computes a tree of tokens, such as draft tokens of which one for each
 * position may be right. A parent is an earlier row at the position before. A token whose parent
 * has another sequence begins a branch: a sequence of its own, with the page table of its parent
 * up to some page and other pages from there on. Where the page tables differ, the step also stores
 * the keys and values of the branch's ancestors in the step in the pages of the branch; those of
 * earlier steps must be there already. So a token attends to its ancestors at their positions, and
 * to no other branch. A sequence begins at most one branch. A step without parents computes chains:
 * the parent is the row before, if it has the same sequence.
 */

/*
 * If n_steps is above 1, the step runs several times, each time on the tokens that the previous
 * step chose: tokens[i] becomes the token of output i, which is also appended to the history of
 * that output (whose last history_sizes[i] entries are kept), and both positions increase by 1.
 * This requires as many sequences as tokens and outputs, sequences[i] == output_rows[i] == i, page
 * tables for all the positions, causal attention, and no masks, parents or forced tokens. The run
 * ends early after a step in which any output chose an end token or no token.
 */

/*
 * A step with recurrent state requires the tokens of a sequence in consecutive rows and at
 * consecutive positions, a different slot for each sequence, and no parents. A sequence whose
 * tokens begin at position 0 begins with a state of zeros; any other continues from its slot, which
 * must hold the state after the preceding tokens. A step without recurrent state ignores slots.
 */

/*
 * The choice of the token of one output, in this order: repetition penalty, presence and frequency
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
  int32_t forced_token;    /* >= 0: choose this token, and report its log-probability */
  uint32_t seed_low;
  uint32_t seed_high;
  uint32_t stream;
  uint32_t position;
  uint32_t history_begin; /* slice of history */
  uint32_t history_end;
  uint32_t bias_begin; /* slice of bias */
  uint32_t bias_end;
  int32_t mask;   /* index of a mask, or -1 */
  uint32_t n_top; /* number of the most probable tokens to report, at most max_top */
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

/* Control of a run in progress: another thread may change it by atomic stores. */
typedef struct {
  /*
   * Not 0: the run returns FORGE_CANCELLED early. Its KV pages are then undefined from its first
   * position on, and so are the slots of its sequences.
   */
  int32_t stop;
  /*
   * 0: the masks of the input block are complete. Otherwise they are still being written: the run
   * waits for them before it samples, and fails after this many milliseconds.
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
 * The time of the last successful run inside this library.
 */
FORGE_API forge_status forge_step_time(uint32_t step, uint64_t *nanoseconds);

/*
 * Turns the measurement of the times of operations on or off, for later runs. A GPU then runs one
 * kernel at a time, without graphs.
 */
FORGE_API forge_status forge_step_profile(uint32_t step, uint32_t enabled);

/*
 * The times of the last run as JSON: [{"step", "operation", "matrix", "kernel", "begin",
 * "duration", "bytes", "flops"}], in order. begin and duration are nanoseconds, from the start of
 * the run; bytes and flops are the least that the operation's formula asks for, which GPUs report
 * with the first kernel of an operation. An operation that another one computed is not listed.
 * Writes the size that the text needs; a shorter buffer gets its beginning, one of 0 bytes nothing.
 */
FORGE_API forge_status forge_step_spans(uint32_t step, char *text, uint64_t capacity,
                                        uint64_t *bytes);

/* Makes a value readable after a run. Must be called before forge_step_end. */
FORGE_API forge_status forge_step_keep(uint32_t step, uint32_t value);

/* Copies rows of a kept value of the last step of the last run into out[n_rows, cols]. */
FORGE_API forge_status forge_step_read(uint32_t step, uint32_t value, uint64_t first_row,
                                       uint64_t n_rows, float *out, uint64_t bytes);

#endif
