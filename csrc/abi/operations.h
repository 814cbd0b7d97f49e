/* Recording a step: the operations of a forward pass, and their order. */
#ifndef FORGE_ABI_OPERATIONS_H
#define FORGE_ABI_OPERATIONS_H

#include "base.h"

/* Activations of matmul epilogues and gated units. */
enum {
  FORGE_IDENTITY = 0,
  FORGE_SILU = 1,
  FORGE_GELU_TANH = 2,   /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
  FORGE_GELU_ERF = 3,    /* 0.5 x (1 + erf(x / sqrt(2))) */
  FORGE_RELU_SQUARED = 5 /* max(x, 0)^2 */
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
 * Which key head a value head of linear attention reads, where r value heads share one of n key
 * heads: value head i reads key head i / r (GROUPED, as trained) or i mod n (TILED, as some GGUF
 * files store them).
 */
enum {
  FORGE_HEADS_GROUPED = 0,
  FORGE_HEADS_TILED = 1
};

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
 * out = residual + x / sqrt(mean(x^2) + eps) * (weight + weight_offset), the mean over each group
 * of as many columns as the weight has; residual may be 0.
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
 * A product for each head: x is [rows, n_heads * weight.cols], the weight's rows are n_heads equal
 * blocks, and each head's columns of out[rows, weight.rows] are its columns of x times its block
 * transposed.
 */
FORGE_API forge_status forge_head_matmul(uint32_t step, uint32_t x, uint32_t weight,
                                         uint32_t n_heads, uint32_t *out);

/*
 * out[tokens, 2 n] = scale * (cos | sin) of position * inv_freq, for the n frequencies of the
 * weight inv_freq[1, n]. Computed once a step and shared by the layers that rotate alike.
 */
FORGE_API forge_status forge_rope_table(uint32_t step, uint32_t inv_freq, float scale,
                                        uint32_t *out);

/*
 * Splits qkv[tokens, q heads | k heads | v heads], normalises and rotates q and k, appends k and v
 * to the cache at each token's position, and returns q[tokens, n_heads * k_head_dim].
 * `q_norm` and `k_norm` (may be 0) are RMSNorm weights, per head when as wide as a head, else over
 * all heads at once. `rope` (may be 0) is a forge_rope_table value that rotates the first 2 n
 * elements of each head. Where values are in the keys, qkv is [tokens, q heads | k heads] and the
 * last 2 n elements are rotated, which must not be values.
 */
FORGE_API forge_status forge_rope_append(uint32_t step, uint32_t qkv, uint32_t kv, uint32_t n_heads,
                                         uint32_t q_norm, uint32_t k_norm, float eps,
                                         float weight_offset, uint32_t rope, uint32_t rope_layout,
                                         uint32_t *out);

/*
 * Causal attention of q[tokens, n_heads * k_head_dim] over the pages of each token's own sequence:
 * scores are scale * q k, softcap * tanh(score / softcap) when softcap > 0, over the last `window`
 * positions when window > 0. `sinks` (may be 0) is a weight [1, n_heads] of logits that take part
 * in the softmax and carry no value. out[tokens, n_heads * v_head_dim].
 */
FORGE_API forge_status forge_attention(uint32_t step, uint32_t q, uint32_t kv, uint32_t n_heads,
                                       float scale, uint32_t window, float softcap, uint32_t sinks,
                                       uint32_t *out);

/*
 * x is groups of (gate[width] | up[width]); out is groups of activation(gate) * up, or of what
 * another gated unit makes of them.
 */
FORGE_API forge_status forge_glu(uint32_t step, uint32_t x, uint32_t width, uint32_t unit,
                                 uint32_t *out);

/*
 * out = residual + sigmoid(gate) * x; each column of gate is for as many neighbouring columns of x.
 */
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
 * before the run come from the sequence's slot of `state`, [width - 1, cols], which then keeps the
 * last width - 1 rows; rows from before the sequence are zero. `bias` (may be 0) is [1, cols].
 */
FORGE_API forge_status forge_causal_conv1d(uint32_t step, uint32_t x, uint32_t weight,
                                           uint32_t bias, uint32_t state, uint32_t activation,
                                           uint32_t *out);

/*
 * Linear attention by the gated delta rule. For each token of a sequence in turn and each value
 * head, with q and k of its key head (see FORGE_HEADS_GROUPED) and S, [k_dim, v_dim], its part of
 * the sequence's slot of `state`:
 *
 *   q = scale q / sqrt(sum(q^2) + eps), k = k / sqrt(sum(k^2) + eps)
 *   beta = sigmoid(b), decay = exp(rate * log(1 + exp(a + dt_bias)))
 *   S = decay S
 *   S = S + k (beta (v - k S))
 *   out = q S
 *
 * qkv[tokens, k_dim of each key head (q) | k_dim of each key head (k) | v_dim of each value head];
 * ba[tokens, b of each value head | a of each value head]; `rate` (negative) and `dt_bias` are
 * weights [1, n_v_heads]; `state` is [n_v_heads * k_dim, v_dim]. A sequence begins with S = 0.
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
 * out is `n_groups` groups of columns, each the pieces one behind another: from piece p, group g
 * has scale_p * value_p[first_p + g step_p ... + width_p - 1]. All values have the same rows.
 */
FORGE_API forge_status forge_gather_columns(uint32_t step, const forge_piece *pieces,
                                            uint64_t n_pieces, uint32_t n_groups, uint32_t *out);

/*
 * out = the columns of x in another order: column i is column order[i] of x. `order` holds, for each of
 * n_experts, `cols` numbers below `cols`, which is at most 2^24. Without `route` (0) n_experts is 1, x
 * is [tokens, cols], and so is out. With it x is [tokens, cols] or [tokens, top_k * cols], and
 * out[tokens, top_k * cols] holds the columns for each chosen expert in its own order. Products with
 * weights whose columns are in such an order take it.
 */
FORGE_API forge_status forge_permute_columns(uint32_t step, uint32_t x, uint32_t route,
                                             const uint32_t *order, uint64_t n_experts,
                                             uint64_t cols, uint32_t *out);

/* What a router's logits become before experts are chosen. */
enum {
  FORGE_SCORES_SOFTMAX = 0,
  FORGE_SCORES_SIGMOID = 1 /* 1 / (1 + exp(-logit)), each expert by itself */
};

/*
 * Chooses `top_k` experts a token from router logits[tokens, n_experts] by score (ties to the lower
 * expert), or with `bias` (a weight [1, n_experts], may be 0) by score + bias. The weight of a
 * chosen one is its score without bias, over the sum of the chosen ones when `normalize`, times
 * `scale`, times its own factor of `expert_scales` (a weight [1, n_experts], may be 0).
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
 * A product with the chosen experts. The weight's rows are n_experts equal blocks; bias (may be 0)
 * is a weight [n_experts, rows per expert]. x is [tokens, cols] (every expert sees the same row) or
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

/* out = x held within -limit and limit; NaN stays. */
FORGE_API forge_status forge_clamp(uint32_t step, uint32_t x, float limit, uint32_t *out);

/*
 * Chooses one token for each row of logits[outputs, vocabulary] as the input block asks, and
 * reports up to `max_top` alternatives. At most one a step, and its last operation. See
 * forge_sampling.
 */
FORGE_API forge_status forge_sample(uint32_t step, uint32_t logits, uint32_t max_top);

/* Ends recording: checks the step, plans its memory and allocates it. */
FORGE_API forge_status forge_step_end(uint32_t step, uint64_t *scratch_bytes);

#endif
