/**
 * The symbols of `csrc/forge.h`, as data. `test/unit/ffi/abi_test.ts` holds the two together.
 *
 * Pointers are all `buffer`: memory the caller owns for the length of the call. Handles are
 * integers, so nothing here needs `Deno.UnsafePointer`, and `--allow-ffi` can stay scoped to the
 * library's path.
 */

/** `FORGE_ABI_VERSION` of the header this table was written against. */
export const ABI_VERSION = 5;

/** The one symbol whose shape never changes; asked before any other is looked up. */
export const versionSymbol = {
  forge_abi_version: { parameters: [], result: "u32" },
} as const satisfies Deno.ForeignLibraryInterface;

const status = "i32";

/** Every function of the header but `forge_abi_version`. */
export const symbols = {
  // ---- library and devices
  forge_library_info: {
    parameters: [
      "buffer", // char *text
      "u64", // uint64_t capacity
    ],
    result: status,
  },
  forge_list_devices: {
    parameters: [
      "buffer", // char *text
      "u64", // uint64_t capacity
    ],
    result: status,
  },
  forge_device_open: {
    parameters: [
      "buffer", // const char *selector
      "u32", // uint32_t n_threads
      "buffer", // uint32_t *device
      "buffer", // char *message
      "u64", // uint64_t capacity
    ],
    result: status,
  },
  forge_set_attention: {
    parameters: [
      "u32", // uint32_t device
      "u32", // uint32_t attention
    ],
    result: status,
  },
  forge_device_info: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // char *text
      "u64", // uint64_t capacity
    ],
    result: status,
  },
  forge_read_bandwidth: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // uint64_t *bytes_per_second
    ],
    result: status,
  },
  forge_peak_memory: {
    parameters: [
      "buffer", // uint64_t *bytes
    ],
    result: status,
  },
  forge_error_text: {
    parameters: [
      "u32", // uint32_t handle
      "buffer", // char *text
      "u64", // uint64_t capacity
    ],
    result: status,
  },
  forge_release: {
    parameters: [
      "u32", // uint32_t handle
    ],
    result: status,
  },

  // ---- weights
  forge_file_map: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // const char *path
      "buffer", // uint32_t *file
      "buffer", // uint64_t *bytes
    ],
    result: status,
  },
  forge_weight_create: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // const forge_weight_part *parts
      "u64", // uint64_t n_parts
      "u64", // uint64_t cols
      "buffer", // uint32_t *weight
    ],
    result: status,
  },
  forge_weight_upload: {
    parameters: [
      "u32", // uint32_t device
      "u32", // uint32_t type
      "u64", // uint64_t rows
      "u64", // uint64_t cols
      "buffer", // const void *data
      "u64", // uint64_t bytes
      "buffer", // uint32_t *weight
    ],
    result: status,
  },
  forge_weight_read: {
    parameters: [
      "u32", // uint32_t weight
      "u64", // uint64_t first_row
      "u64", // uint64_t n_rows
      "buffer", // float *out
      "u64", // uint64_t bytes
    ],
    result: status,
  },
  forge_quantize: {
    parameters: [
      "u32", // uint32_t device
      "u32", // uint32_t type
      "u64", // uint64_t rows
      "u64", // uint64_t cols
      "buffer", // const float *data
      "u64", // uint64_t data_bytes
      "buffer", // void *out
      "u64", // uint64_t out_bytes
    ],
    result: status,
  },

  // ---- KV cache
  forge_kv_create: {
    parameters: [
      "u32", // uint32_t device
      "u32", // uint32_t type
      "u32", // uint32_t n_pages
      "u32", // uint32_t page_tokens
      "u32", // uint32_t n_kv_heads
      "u32", // uint32_t k_head_dim
      "u32", // uint32_t v_head_dim
      "buffer", // uint32_t *kv
      "buffer", // uint64_t *page_bytes
    ],
    result: status,
  },
  forge_kv_copy_page: {
    parameters: [
      "u32", // uint32_t kv
      "u32", // uint32_t from
      "u32", // uint32_t to
    ],
    result: status,
  },
  forge_kv_read_page: {
    parameters: [
      "u32", // uint32_t kv
      "u32", // uint32_t page
      "buffer", // void *data
      "u64", // uint64_t bytes
    ],
    result: status,
  },
  forge_kv_write_page: {
    parameters: [
      "u32", // uint32_t kv
      "u32", // uint32_t page
      "buffer", // const void *data
      "u64", // uint64_t bytes
    ],
    result: status,
  },

  // ---- recurrent state
  forge_state_create: {
    parameters: [
      "u32", // uint32_t device
      "u32", // uint32_t n_slots
      "u32", // uint32_t rows
      "u32", // uint32_t cols
      "buffer", // uint32_t *state
      "buffer", // uint64_t *slot_bytes
    ],
    result: status,
  },
  forge_state_copy_slot: {
    parameters: [
      "u32", // uint32_t state
      "u32", // uint32_t from
      "u32", // uint32_t to
    ],
    result: status,
  },
  forge_state_read_slot: {
    parameters: [
      "u32", // uint32_t state
      "u32", // uint32_t slot
      "buffer", // void *data
      "u64", // uint64_t bytes
    ],
    result: status,
  },
  forge_state_write_slot: {
    parameters: [
      "u32", // uint32_t state
      "u32", // uint32_t slot
      "buffer", // const void *data
      "u64", // uint64_t bytes
    ],
    result: status,
  },

  // ---- recording a step
  forge_step_begin: {
    parameters: [
      "u32", // uint32_t device
      "u32", // uint32_t max_tokens
      "u32", // uint32_t max_outputs
      "u32", // uint32_t max_sequences
      "u32", // uint32_t max_pages
      "buffer", // uint32_t *step
    ],
    result: status,
  },
  forge_embed: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t weight
      "f32", // float scale
      "buffer", // uint32_t *out
    ],
    result: status,
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
    result: status,
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
    result: status,
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
    result: status,
  },
  forge_rope_table: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t inv_freq
      "f32", // float scale
      "buffer", // uint32_t *out
    ],
    result: status,
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
    result: status,
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
    result: status,
  },
  forge_glu: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "u32", // uint32_t width
      "u32", // uint32_t unit
      "buffer", // uint32_t *out
    ],
    result: status,
  },
  forge_sigmoid_gate: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "u32", // uint32_t gate
      "u32", // uint32_t residual
      "buffer", // uint32_t *out
    ],
    result: status,
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
    result: status,
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
    result: status,
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
    result: status,
  },
  forge_gather_columns: {
    parameters: [
      "u32", // uint32_t step
      "buffer", // const forge_piece *pieces
      "u64", // uint64_t n_pieces
      "u32", // uint32_t n_groups
      "buffer", // uint32_t *out
    ],
    result: status,
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
    result: status,
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
    result: status,
  },
  forge_moe_combine: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "u32", // uint32_t route
      "u32", // uint32_t residual
      "buffer", // uint32_t *out
    ],
    result: status,
  },
  forge_gather_outputs: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "buffer", // uint32_t *out
    ],
    result: status,
  },
  forge_softcap: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t x
      "f32", // float cap
      "buffer", // uint32_t *out
    ],
    result: status,
  },
  forge_sample: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t logits
      "u32", // uint32_t max_top
    ],
    result: status,
  },
  forge_step_end: {
    parameters: [
      "u32", // uint32_t step
      "buffer", // uint64_t *scratch_bytes
    ],
    result: status,
    nonblocking: true,
  },

  // ---- running a step
  forge_step_run: {
    parameters: [
      "u32", // uint32_t step
      "buffer", // const void *inputs
      "u64", // uint64_t input_bytes
      "buffer", // void *results
      "u64", // uint64_t result_bytes
      "buffer", // const forge_step_control *control
    ],
    result: status,
    nonblocking: true,
  },
  forge_step_time: {
    parameters: [
      "u32", // uint32_t step
      "buffer", // uint64_t *nanoseconds
    ],
    result: status,
  },
  forge_step_keep: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t value
    ],
    result: status,
  },
  forge_step_read: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t value
      "u64", // uint64_t first_row
      "u64", // uint64_t n_rows
      "buffer", // float *out
      "u64", // uint64_t bytes
    ],
    result: status,
  },
} as const satisfies Deno.ForeignLibraryInterface;

/** The symbols of an open library. */
export type Symbols = Deno.DynamicLibrary<typeof symbols>["symbols"];
