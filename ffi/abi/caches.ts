/** The functions of `csrc/abi/caches.h`. */
export const cacheSymbols = {
  forge_kv_create: {
    parameters: [
      "u32", // uint32_t device
      "u32", // uint32_t type
      "u32", // uint32_t n_pages
      "u32", // uint32_t page_tokens
      "u32", // uint32_t n_kv_heads
      "u32", // uint32_t k_head_dim
      "u32", // uint32_t v_head_dim
      "u32", // uint32_t values_in_keys
      "buffer", // uint32_t *kv
      "buffer", // uint64_t *page_bytes
    ],
    result: "i32",
  },
  forge_kv_copy_page: {
    parameters: [
      "u32", // uint32_t kv
      "u32", // uint32_t from
      "u32", // uint32_t to
    ],
    result: "i32",
  },
  forge_kv_read_page: {
    parameters: [
      "u32", // uint32_t kv
      "u32", // uint32_t page
      "buffer", // void *data
      "u64", // uint64_t bytes
    ],
    result: "i32",
  },
  forge_kv_write_page: {
    parameters: [
      "u32", // uint32_t kv
      "u32", // uint32_t page
      "buffer", // const void *data
      "u64", // uint64_t bytes
    ],
    result: "i32",
  },
  forge_state_create: {
    parameters: [
      "u32", // uint32_t device
      "u32", // uint32_t n_slots
      "u32", // uint32_t rows
      "u32", // uint32_t cols
      "buffer", // uint32_t *state
      "buffer", // uint64_t *slot_bytes
    ],
    result: "i32",
  },
  forge_state_copy_slot: {
    parameters: [
      "u32", // uint32_t state
      "u32", // uint32_t from
      "u32", // uint32_t to
    ],
    result: "i32",
  },
  forge_state_read_slot: {
    parameters: [
      "u32", // uint32_t state
      "u32", // uint32_t slot
      "buffer", // void *data
      "u64", // uint64_t bytes
    ],
    result: "i32",
  },
  forge_state_write_slot: {
    parameters: [
      "u32", // uint32_t state
      "u32", // uint32_t slot
      "buffer", // const void *data
      "u64", // uint64_t bytes
    ],
    result: "i32",
  },
} as const satisfies Deno.ForeignLibraryInterface;
