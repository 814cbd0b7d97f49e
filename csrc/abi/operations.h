/* Recording a step: the operations of a forward pass, in order. */
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

/* Gated units other than activation(gate) * up. */
enum {
  /* (up + 1) gate / (1 + exp(-1.702 gate)), gate clamped to <= 7 and up to [-7, 7] (gpt-oss). */
  FORGE_CLAMPED_SWIGLU = 4
};

/* The pairs of elements of a head that RoPE rotates. */
enum {
  FORGE_ROPE_HALF = 0,       /* (i, i + rotary_dim / 2) */
  FORGE_ROPE_INTERLEAVED = 1 /* (2 i, 2 i + 1) */
};

/*
 * The key head of a value head of linear attention, if r value heads share each of n key heads:
 * value head i reads key head i / r (GROUPED, as trained) or i mod n (TILED, as some GGUF files
 * store them).
 */
enum {
  FORGE_HEADS_GROUPED = 0,
  FORGE_HEADS_TILED = 1
};

/*
 * Begins a step for at most `max_tokens` tokens of `max_sequences` sequences with `max_pages` pages
 * each, and for at most `max_outputs` outputs. forge_record then appends operations, which return
 * values: small integers, valid in this step only.
 */
FORGE_API forge_status forge_step_begin(uint32_t device, uint32_t max_tokens, uint32_t max_outputs,
                                        uint32_t max_sequences, uint32_t max_pages, uint32_t *step);

/* The scores that a router computes from its logits. */
enum {
  FORGE_SCORES_SOFTMAX = 0,
  FORGE_SCORES_SIGMOID = 1, /* 1 / (1 + exp(-logit)), independently for each expert */
  FORGE_SCORES_SPARSEMIXER = 2 /* of Phi-MoE: see moe_route */
};

/*
 * Lists the operations and their operands, one per line: "name operand:kind operand:kind ...".
 * Kinds are value, weight, kv and state (a value of the step, or the handle of a weight or cache;
 * with "?", 0 means none), u32, f32 (the bits of a float), bool, and pieces. Formulas, shapes and
 * checks are in csrc/common/operations.h, the table of operations.
 */
FORGE_API forge_status forge_operations(char *text, uint64_t capacity);

/*
 * Appends an operation to a step, with its operands in the order of forge_operations: one 32-bit
 * word each, and for pieces three times (value, width, first, step, scale), all 0 if unused. Stores
 * the value that the operation defines in `out`; 0 for `sample`, which defines none.
 */
FORGE_API forge_status forge_record(uint32_t step, const char *operation, const uint32_t *operands,
                                    uint64_t n_words, uint32_t *out);

/* Ends recording: checks the step, plans its memory and allocates it. */
FORGE_API forge_status forge_step_end(uint32_t step, uint64_t *scratch_bytes);

#endif
