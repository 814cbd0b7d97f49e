/*
 * The forge ABI: what every backend library exports and all that TypeScript knows of native code.
 *
 * A step is recorded once and run many times. Recording names the operations of a model's forward
 * pass over *values*: matrices of float activations whose row count is either the step's tokens or
 * its outputs, and is only known when the step runs. What changes from run to run (token ids,
 * positions, page tables, sampling parameters) arrives in one packed input block, so nothing is
 * recorded again for its sake, and one call executes the whole step.
 *
 * Conventions
 *   - Handles are integers; 0 is never a handle and stands for "none" where a parameter is optional.
 *     A released or foreign handle is an error, not a crash.
 *   - Every function but forge_abi_version returns a forge_status. Text about the last failure on a
 *     handle is read with forge_error_text, on that handle; nothing is kept per thread.
 *   - Text goes to a caller's buffer as UTF-8, truncated to capacity and always NUL-terminated.
 *   - Matrices are row-major. A weight has the shape [rows, cols] = [out_features, in_features].
 *   - Functions may be called from any thread. Two runs of one step must not overlap, nor may a run
 *     overlap another run that touches the same KV pages or states.
 */
#ifndef FORGE_H
#define FORGE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define FORGE_API __declspec(dllexport)
#else
#define FORGE_API __attribute__((visibility("default")))
#endif

#define FORGE_ABI_VERSION 5
#define FORGE_VERSION "0.1.0"

typedef int32_t forge_status;

enum {
  FORGE_OK = 0,
  FORGE_INVALID_ARGUMENT = 1, /* an argument contradicts the contract or another argument */
  FORGE_BAD_HANDLE = 2,       /* not a live handle of the expected kind */
  FORGE_OUT_OF_MEMORY = 3,
  FORGE_IO = 4,               /* a file cannot be opened, mapped or read */
  FORGE_UNSUPPORTED = 5,      /* well-formed, but this backend or device cannot do it */
  FORGE_CANCELLED = 6,        /* the stop flag was raised */
  FORGE_DEVICE_FAILED = 7,    /* the device or its driver reported a failure */
  FORGE_INTERNAL = 8          /* a bug in the library */
};

/* Element types of weights, under GGUF's numbers. */
enum {
  FORGE_F32 = 0,
  FORGE_F16 = 1,
  FORGE_Q4_0 = 2,
  FORGE_Q4_1 = 3,
  FORGE_Q5_0 = 6,
  FORGE_Q5_1 = 7,
  FORGE_Q8_0 = 8,
  FORGE_Q2_K = 10,
  FORGE_Q3_K = 11,
  FORGE_Q4_K = 12,
  FORGE_Q5_K = 13,
  FORGE_Q6_K = 14,
  FORGE_IQ2_XXS = 16,
  FORGE_IQ2_XS = 17,
  FORGE_IQ3_XXS = 18,
  FORGE_IQ1_S = 19,
  FORGE_IQ4_NL = 20,
  FORGE_IQ3_S = 21,
  FORGE_IQ2_S = 22,
  FORGE_IQ4_XS = 23,
  FORGE_IQ1_M = 29,
  FORGE_BF16 = 30,
  FORGE_TQ1_0 = 34,
  FORGE_TQ2_0 = 35,
  FORGE_MXFP4 = 39
};

/* Activations of matmul epilogues and gated units. */
enum {
  FORGE_IDENTITY = 0,
  FORGE_SILU = 1,
  FORGE_GELU_TANH = 2, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
  FORGE_GELU_ERF = 3   /* 0.5 x (1 + erf(x / sqrt(2))) */
};

/* Gated units that are no activation(gate) * up. */
enum {
  /* (up + 1) gate / (1 + exp(-1.702 gate)) with gate at most 7 and up within -7 and 7 (gpt-oss). */
  FORGE_CLAMPED_SWIGLU = 4
};

/* Which elements of a head form the pairs that RoPE rotates. */
enum {
  FORGE_ROPE_HALF = 0,       /* (i, i + rotary_dim / 2) */
  FORGE_ROPE_INTERLEAVED = 1 /* (2 i, 2 i + 1) */
};

/*
 * Which key head a value head of linear attention reads, where r value heads share one of n key heads:
 * value head i reads key head i / r (GROUPED, as trained) or i mod n (TILED, as some GGUF files store
 * them).
 */
enum {
  FORGE_HEADS_GROUPED = 0,
  FORGE_HEADS_TILED = 1
};

/* Which kernels compute attention; see forge_set_attention. */
enum {
  FORGE_ATTENTION_AUTO = 0,  /* the fastest that the device and the caches' shapes allow */
  FORGE_ATTENTION_FLASH = 1, /* those of libflash_attn */
  FORGE_ATTENTION_TILED = 2, /* the device's own, on tensor cores */
  FORGE_ATTENTION_NAIVE = 3  /* the device's own for any shape */
};

/* ---- library and devices ------------------------------------------------------------------ */

FORGE_API uint32_t forge_abi_version(void);

/* JSON: {"backend", "version", "compiler", "types": [weight type names]}. */
FORGE_API forge_status forge_library_info(char *text, uint64_t capacity);

/* JSON array of the devices this machine has for the backend: [{"selector", "name", ...}]. Opens none. */
FORGE_API forge_status forge_list_devices(char *text, uint64_t capacity);

/*
 * Opens a device. `selector` is a backend's own name for one of its devices or of its instruction
 * sets ("" = the best). `n_threads` is the number of host threads that compute (0 = one per core).
 * Without a handle to ask, the reason of a failure is written to `message`.
 */
FORGE_API forge_status forge_device_open(const char *selector, uint32_t n_threads, uint32_t *device,
                                         char *message, uint64_t capacity);

/*
 * Chooses the kernels that compute attention in steps that end recording from now on. FORGE_UNSUPPORTED
 * where the device has no such choice; a choice that a step's shapes cannot meet fails its
 * forge_step_end.
 */
FORGE_API forge_status forge_set_attention(uint32_t device, uint32_t attention);

/* JSON: {"name", "threads", "features": [...], "kernels", "memory_bytes", "details": [...]}. */
FORGE_API forge_status forge_device_info(uint32_t device, char *text, uint64_t capacity);

/*
 * Bytes a second that the device reads of its memory at most, measured now in a fraction of a second:
 * what decoding can be compared with. 0 where the backend does not measure it.
 */
FORGE_API forge_status forge_read_bandwidth(uint32_t device, uint64_t *bytes_per_second);

/* The most memory that this process has held resident so far, in bytes; 0 where the system does not tell. */
FORGE_API forge_status forge_peak_memory(uint64_t *bytes);

/* The text of the last failure of a call on `handle`; empty when there was none. */
FORGE_API forge_status forge_error_text(uint32_t handle, char *text, uint64_t capacity);

/* Releases any handle. What still needs the object (a step needs its weights) keeps it alive. */
FORGE_API forge_status forge_release(uint32_t handle);

/* ---- weights ------------------------------------------------------------------------------ */

/* Maps a file for reading. `bytes` receives its size. */
FORGE_API forge_status forge_file_map(uint32_t device, const char *path, uint32_t *file,
                                      uint64_t *bytes);

/* `rows` rows of a tensor that starts at byte `offset` of a mapped file. */
typedef struct {
  uint32_t file;
  uint32_t type;
  uint64_t offset;
  uint64_t rows;
} forge_weight_part;

/*
 * A weight whose rows are the concatenation of its parts; types may differ from part to part. The
 * files stay mapped while the weight lives. A backend may copy or repack.
 */
FORGE_API forge_status forge_weight_create(uint32_t device, const forge_weight_part *parts,
                                           uint64_t n_parts, uint64_t cols, uint32_t *weight);

/* A weight from memory; the data is copied. */
FORGE_API forge_status forge_weight_upload(uint32_t device, uint32_t type, uint64_t rows,
                                           uint64_t cols, const void *data, uint64_t bytes,
                                           uint32_t *weight);

/* Dequantises `n_rows` rows from `first_row` into out[n_rows, cols]. */
FORGE_API forge_status forge_weight_read(uint32_t weight, uint64_t first_row, uint64_t n_rows,
                                         float *out, uint64_t bytes);

/*
 * Quantises rows * cols floats (round to nearest, no search) into `out`: for tests and synthetic
 * models. F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q6_K.
 */
FORGE_API forge_status forge_quantize(uint32_t device, uint32_t type, uint64_t rows, uint64_t cols,
                                      const float *data, uint64_t data_bytes, void *out,
                                      uint64_t out_bytes);

/* ---- KV cache ----------------------------------------------------------------------------- */

/*
 * The keys and values of one layer, in `n_pages` pages of `page_tokens` tokens. `type` is F32, F16,
 * BF16 or Q8_0: blocks of 32 elements of a head (the last one of a head may be shorter), each with a
 * float16 scale. Pages are zero until written; their layout is the backend's
 * own.
 */
FORGE_API forge_status forge_kv_create(uint32_t device, uint32_t type, uint32_t n_pages,
                                       uint32_t page_tokens, uint32_t n_kv_heads,
                                       uint32_t k_head_dim, uint32_t v_head_dim, uint32_t *kv,
                                       uint64_t *page_bytes);
FORGE_API forge_status forge_kv_copy_page(uint32_t kv, uint32_t from, uint32_t to);
FORGE_API forge_status forge_kv_read_page(uint32_t kv, uint32_t page, void *data, uint64_t bytes);
FORGE_API forge_status forge_kv_write_page(uint32_t kv, uint32_t page, const void *data,
                                           uint64_t bytes);

/* ---- recurrent state ---------------------------------------------------------------------- */

/*
 * What one operation of one layer remembers of the tokens before: `n_slots` matrices of floats
 * [rows, cols], one for each sequence that holds a slot. Their layout is the backend's own.
 * FORGE_UNSUPPORTED where the device has no such operations.
 */
FORGE_API forge_status forge_state_create(uint32_t device, uint32_t n_slots, uint32_t rows,
                                          uint32_t cols, uint32_t *state, uint64_t *slot_bytes);
FORGE_API forge_status forge_state_copy_slot(uint32_t state, uint32_t from, uint32_t to);
FORGE_API forge_status forge_state_read_slot(uint32_t state, uint32_t slot, void *data,
                                             uint64_t bytes);
FORGE_API forge_status forge_state_write_slot(uint32_t state, uint32_t slot, const void *data,
                                              uint64_t bytes);

/* ---- recording a step --------------------------------------------------------------------- */

/*
 * Begins a step for at most `max_tokens` tokens of `max_sequences` sequences with `max_pages` pages
 * each, of which `max_outputs` rows become outputs. Operations then append to it and return values,
 * which are small integers that only this step understands.
 */
FORGE_API forge_status forge_step_begin(uint32_t device, uint32_t max_tokens, uint32_t max_outputs,
                                        uint32_t max_sequences, uint32_t max_pages, uint32_t *step);

/* out[tokens, cols] = scale * weight[token id]. */
FORGE_API forge_status forge_embed(uint32_t step, uint32_t weight, float scale, uint32_t *out);

/*
 * out = residual + x / sqrt(mean(x^2) + eps) * (weight + weight_offset), the mean over each group of as
 * many columns as the weight has; residual may be 0.
 */
FORGE_API forge_status forge_rms_norm(uint32_t step, uint32_t x, uint32_t weight, float eps,
                                      float weight_offset, uint32_t residual, uint32_t *out);

/* out = (x - mean) / sqrt(variance + eps) * weight + bias; bias may be 0. */
FORGE_API forge_status forge_layer_norm(uint32_t step, uint32_t x, uint32_t weight, uint32_t bias,
                                        float eps, uint32_t *out);

/*
 * out[rows, weight.rows] = residual + alpha * activation(x weight^T + bias). `bias` is a weight of
 * one row; it and `residual` may be 0.
 */
FORGE_API forge_status forge_matmul(uint32_t step, uint32_t x, uint32_t weight, uint32_t bias,
                                    float alpha, uint32_t activation, uint32_t residual,
                                    uint32_t *out);

/*
 * out[tokens, 2 n] = scale * (cos | sin) of position * inv_freq, for the n frequencies of the weight
 * inv_freq[1, n]. Computed once a step and shared by the layers that rotate alike.
 */
FORGE_API forge_status forge_rope_table(uint32_t step, uint32_t inv_freq, float scale,
                                        uint32_t *out);

/*
 * Splits qkv[tokens, q heads | k heads | v heads], normalises and rotates q and k, appends k and v
 * to the cache at each token's position, and returns q[tokens, n_heads * k_head_dim].
 * `q_norm` and `k_norm` (may be 0) are RMSNorm weights, per head when as wide as a head, else over
 * all heads at once. `rope` (may be 0) is a forge_rope_table value that rotates the first 2 n
 * elements of each head.
 */
FORGE_API forge_status forge_rope_append(uint32_t step, uint32_t qkv, uint32_t kv, uint32_t n_heads,
                                         uint32_t q_norm, uint32_t k_norm, float eps,
                                         float weight_offset, uint32_t rope, uint32_t rope_layout,
                                         uint32_t *out);

/*
 * Causal attention of q[tokens, n_heads * k_head_dim] over the pages of each token's own sequence:
 * scores are scale * q k, softcap * tanh(score / softcap) when softcap > 0, over the last `window`
 * positions when window > 0. `sinks` (may be 0) is a weight [1, n_heads] of logits that take part in
 * the softmax and carry no value. out[tokens, n_heads * v_head_dim].
 */
FORGE_API forge_status forge_attention(uint32_t step, uint32_t q, uint32_t kv, uint32_t n_heads,
                                       float scale, uint32_t window, float softcap, uint32_t sinks,
                                       uint32_t *out);

/*
 * x is groups of (gate[width] | up[width]); out is groups of activation(gate) * up, or of what another
 * gated unit makes of them.
 */
FORGE_API forge_status forge_glu(uint32_t step, uint32_t x, uint32_t width, uint32_t unit,
                                 uint32_t *out);

/* out = residual + sigmoid(gate) * x; each column of gate is for as many neighbouring columns of x. */
FORGE_API forge_status forge_sigmoid_gate(uint32_t step, uint32_t x, uint32_t gate,
                                          uint32_t residual, uint32_t *out);

/*
 * out = x / sqrt(mean(x^2) + eps) * weight * activation(gate), the mean over each group of as many
 * columns as the weight has.
 */
FORGE_API forge_status forge_gated_rms_norm(uint32_t step, uint32_t x, uint32_t gate,
                                            uint32_t weight, float eps, uint32_t activation,
                                            uint32_t *out);

/*
 * Causal depthwise convolution over the tokens of each sequence, with weight[cols, width]:
 * out[t][c] = activation(bias[c] + sum over i of weight[c][i] x[t - (width - 1) + i][c]). Rows from
 * before the run come from the sequence's slot of `state`, [width - 1, cols], which then keeps the last
 * width - 1 rows; rows from before the sequence are zero. `bias` (may be 0) is [1, cols].
 */
FORGE_API forge_status forge_causal_conv1d(uint32_t step, uint32_t x, uint32_t weight,
                                           uint32_t bias, uint32_t state, uint32_t activation,
                                           uint32_t *out);

/*
 * Linear attention by the gated delta rule. For each token of a sequence in turn and each value head,
 * with q and k of its key head (see FORGE_HEADS_GROUPED) and S, [k_dim, v_dim], its part of the
 * sequence's slot of `state`:
 *
 *   q = scale q / sqrt(sum(q^2) + eps), k = k / sqrt(sum(k^2) + eps)
 *   beta = sigmoid(b), decay = exp(rate * log(1 + exp(a + dt_bias)))
 *   S = decay S
 *   S = S + k (beta (v - k S))
 *   out = q S
 *
 * qkv[tokens, k_dim of each key head (q) | k_dim of each key head (k) | v_dim of each value head];
 * ba[tokens, b of each value head | a of each value head]; `rate` (negative) and `dt_bias` are weights
 * [1, n_v_heads]; `state` is [n_v_heads * k_dim, v_dim]. A sequence begins with S = 0.
 * out[tokens, n_v_heads * v_dim]. S is kept in float32.
 */
FORGE_API forge_status forge_gated_delta_rule(uint32_t step, uint32_t qkv, uint32_t ba,
                                              uint32_t rate, uint32_t dt_bias, uint32_t state,
                                              uint32_t n_k_heads, uint32_t head_order, float scale,
                                              float eps, uint32_t *out);

/* `width` columns of each group of a forge_gather_columns; 0 of it for pieces that are not used. */
typedef struct {
  uint32_t value;
  uint32_t width;
  uint32_t first; /* the column that group 0 takes first */
  uint32_t step;  /* how many columns behind the one of group g that of group g + 1 lies */
  float scale;
} forge_piece;

enum { FORGE_MAX_PIECES = 3 };

/*
 * out is `n_groups` groups of columns, each the pieces one behind another: from piece p, group g has
 * scale_p * value_p[first_p + g step_p ... + width_p - 1]. All values have the same rows.
 */
FORGE_API forge_status forge_gather_columns(uint32_t step, const forge_piece *pieces,
                                            uint64_t n_pieces, uint32_t n_groups, uint32_t *out);

/* What a router's logits become before experts are chosen. */
enum {
  FORGE_SCORES_SOFTMAX = 0,
  FORGE_SCORES_SIGMOID = 1 /* 1 / (1 + exp(-logit)), each expert by itself */
};

/*
 * Chooses `top_k` experts a token from router logits[tokens, n_experts] by score (ties to the lower
 * expert), or with `bias` (a weight [1, n_experts], may be 0) by score + bias. The weight of a chosen one is
 * its score without bias, over the sum of the chosen ones when `normalize`, times `scale`, times its own
 * factor of `expert_scales` (a weight [1, n_experts], may be 0).
 *
 * Of `n_groups` groups of neighbouring experts only the best `top_groups` take part (all where both
 * are 1): those with the largest score, or with `bias` the largest sum of their two largest.
 *
 * out[tokens, 2 top_k] holds expert numbers, then weights; only moe operations read it.
 */
FORGE_API forge_status forge_moe_route(uint32_t step, uint32_t logits, uint32_t top_k,
                                       uint32_t normalize, float scale, uint32_t scores,
                                       uint32_t bias, uint32_t expert_scales, uint32_t n_groups,
                                       uint32_t top_groups, uint32_t *out);

/*
 * A product with the chosen experts. The weight's rows are n_experts equal blocks; bias (may be 0) is
 * a weight [n_experts, rows per expert]. x is [tokens, cols] (every expert sees the same row) or
 * [tokens, top_k * cols]; out[tokens, top_k * rows per expert].
 */
FORGE_API forge_status forge_moe_matmul(uint32_t step, uint32_t x, uint32_t route, uint32_t weight,
                                        uint32_t bias, uint32_t n_experts, uint32_t *out);

/* out = residual + sum over the chosen experts of weight * x[expert]; residual may be 0. */
FORGE_API forge_status forge_moe_combine(uint32_t step, uint32_t x, uint32_t route,
                                         uint32_t residual, uint32_t *out);

/* out[outputs, cols] = the rows of x that the step's inputs name as outputs. */
FORGE_API forge_status forge_gather_outputs(uint32_t step, uint32_t x, uint32_t *out);

/* out = cap * tanh(x / cap). */
FORGE_API forge_status forge_softcap(uint32_t step, uint32_t x, float cap, uint32_t *out);

/*
 * Chooses one token for each row of logits[outputs, vocabulary] as the input block asks, and reports
 * up to `max_top` alternatives. At most one a step, and its last operation. See forge_sampling.
 */
FORGE_API forge_status forge_sample(uint32_t step, uint32_t logits, uint32_t max_top);

/* Ends recording: checks the step, plans its memory and allocates it. */
FORGE_API forge_status forge_step_end(uint32_t step, uint64_t *scratch_bytes);

/* ---- running a step ----------------------------------------------------------------------- */

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
  /* uint32_t masks[n_masks][mask_words]   bit i of word w allows token 32 w + i                */
} forge_step_header;

/*
 * A step that has recurrent state takes the tokens of a sequence one after another, without a gap in
 * their rows or positions; no two sequences have the same slot. A sequence whose tokens begin at
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
  FORGE_LOGITS_NAN = 1,     /* flag: a logit was NaN or +infinity; token is -1 */
  FORGE_NOTHING_ALLOWED = 2 /* flag: the mask and bias left no token; token is -1 */
};

/*
 * The result block is, for each output, this header, then int32_t ids[max_top] and
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
   * Not 0: the run returns FORGE_CANCELLED early; its KV pages are undefined from its first position,
   * and so are the slots of its sequences.
   */
  int32_t stop;
  /*
   * 0: the masks of the input block are complete. Else they are still being written, and the run waits
   * for them before it samples, for at most this many milliseconds; past those it fails.
   */
  int32_t masks_pending;
} forge_step_control;

/* Runs the step and returns when its results are in `results`. `control` may be null. */
FORGE_API forge_status forge_step_run(uint32_t step, const void *inputs, uint64_t input_bytes,
                                      void *results, uint64_t result_bytes,
                                      const forge_step_control *control);

/* What the last run that succeeded took inside this library; what a caller measures beyond it is its own. */
FORGE_API forge_status forge_step_time(uint32_t step, uint64_t *nanoseconds);

/* Marks a value as readable after a run. To be called before forge_step_end. */
FORGE_API forge_status forge_step_keep(uint32_t step, uint32_t value);

/* Copies rows of a kept value of the last run into out[n_rows, cols]. */
FORGE_API forge_status forge_step_read(uint32_t step, uint32_t value, uint64_t first_row,
                                       uint64_t n_rows, float *out, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
