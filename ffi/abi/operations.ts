/** The functions of `csrc/abi/operations.h`. */
export const operationSymbols = {
  forge_step_begin: {
    parameters: [
      "u32", // uint32_t device
      "u32", // uint32_t max_tokens
      "u32", // uint32_t max_outputs
      "u32", // uint32_t max_sequences
      "u32", // uint32_t max_pages
      "buffer", // uint32_t *step
    ],
    result: "i32",
  },
  forge_embed: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t weight
      "f32", // float scale
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_rms_norm: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "u32", // uint32_t weight
      "f32", // float eps
      "f32", // float weight_offset
      "u32", // uint32_t residual
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_layer_norm: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "u32", // uint32_t weight
      "u32", // uint32_t bias
      "f32", // float eps
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_matmul: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "u32", // uint32_t weight
      "u32", // uint32_t bias
      "f32", // float alpha
      "u32", // uint32_t activation
      "u32", // uint32_t residual
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_head_matmul: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "u32", // uint32_t weight
      "u32", // uint32_t n_heads
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_rope_table: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t inv_freq
      "f32", // float scale
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_rope_append: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t qkv
      "u32", // uint32_t kv
      "u32", // uint32_t n_heads
      "u32", // uint32_t q_norm
      "u32", // uint32_t k_norm
      "f32", // float eps
      "f32", // float weight_offset
      "u32", // uint32_t rope
      "u32", // uint32_t rope_layout
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_attention: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t q
      "u32", // uint32_t kv
      "u32", // uint32_t n_heads
      "f32", // float scale
      "u32", // uint32_t window
      "f32", // float softcap
      "u32", // uint32_t sinks
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_glu: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "u32", // uint32_t width
      "u32", // uint32_t unit
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_sigmoid_gate: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "u32", // uint32_t gate
      "u32", // uint32_t residual
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_gated_rms_norm: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "u32", // uint32_t gate
      "u32", // uint32_t weight
      "f32", // float eps
      "u32", // uint32_t activation
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_causal_conv1d: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "u32", // uint32_t weight
      "u32", // uint32_t bias
      "u32", // uint32_t state
      "u32", // uint32_t activation
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_gated_delta_rule: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t qkv
      "u32", // uint32_t ba
      "u32", // uint32_t rate
      "u32", // uint32_t dt_bias
      "u32", // uint32_t state
      "u32", // uint32_t n_k_heads
      "u32", // uint32_t head_order
      "f32", // float scale
      "f32", // float eps
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_gather_columns: {
    parameters: [
      "u32", // uint32_t step
      "buffer", // const forge_piece *pieces
      "u64", // uint64_t n_pieces
      "u32", // uint32_t n_groups
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_permute_columns: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "u32", // uint32_t route
      "buffer", // const uint32_t *order
      "u64", // uint64_t n_experts
      "u64", // uint64_t cols
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_moe_route: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t logits
      "u32", // uint32_t top_k
      "u32", // uint32_t normalize
      "f32", // float scale
      "u32", // uint32_t scores
      "u32", // uint32_t bias
      "u32", // uint32_t expert_scales
      "u32", // uint32_t n_groups
      "u32", // uint32_t top_groups
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_moe_matmul: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "u32", // uint32_t route
      "u32", // uint32_t weight
      "u32", // uint32_t bias
      "u32", // uint32_t n_experts
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_moe_combine: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "u32", // uint32_t route
      "u32", // uint32_t residual
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_gather_outputs: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_softcap: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "f32", // float cap
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_clamp: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "f32", // float limit
      "buffer", // uint32_t *out
    ],
    result: "i32",
  },
  forge_sample: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t logits
      "u32", // uint32_t max_top
    ],
    result: "i32",
  },
  forge_step_end: {
    parameters: [
      "u32", // uint32_t step
      "buffer", // uint64_t *scratch_bytes
    ],
    result: "i32",
    nonblocking: true,
  },
} as const satisfies Deno.ForeignLibraryInterface;
