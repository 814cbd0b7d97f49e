/** The functions of `csrc/abi/device.h`. */
export const deviceSymbols = {
  forge_library_info: {
    parameters: [
      "buffer", // char *text
      "u64", // uint64_t capacity
    ],
    result: "i32",
  },
  forge_list_devices: {
    parameters: [
      "buffer", // char *text
      "u64", // uint64_t capacity
    ],
    result: "i32",
  },
  forge_device_open: {
    parameters: [
      "buffer", // const char *selector
      "u32", // uint32_t n_threads
      "buffer", // uint32_t *device
      "buffer", // char *message
      "u64", // uint64_t capacity
    ],
    result: "i32",
  },
  forge_set_attention: {
    parameters: [
      "u32", // uint32_t device
      "u32", // uint32_t attention
    ],
    result: "i32",
  },
  forge_set_products: {
    parameters: [
      "u32", // uint32_t device
      "u32", // uint32_t products
    ],
    result: "i32",
  },
  forge_set_nodes: {
    parameters: [
      "u32", // uint32_t device
      "u32", // uint32_t nodes
    ],
    result: "i32",
  },
  forge_device_info: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // char *text
      "u64", // uint64_t capacity
    ],
    result: "i32",
  },
  forge_devices_join: {
    parameters: [
      "buffer", // const uint32_t *devices
      "u32", // uint32_t n_devices
      "buffer", // const forge_group *group
      "buffer", // const void *keys
      "u64", // uint64_t key_bytes
    ],
    result: "i32",
  },
  forge_group_keys: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // void *keys
      "u64", // uint64_t bytes
    ],
    result: "i32",
  },
  forge_group_abort: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // const char *reason
    ],
    result: "i32",
  },
  forge_read_bandwidth: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // uint64_t *bytes_per_second
    ],
    result: "i32",
  },
  forge_matrix_rate: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // uint64_t *operations_per_second
    ],
    result: "i32",
  },
  forge_peak_memory: {
    parameters: [
      "buffer", // uint64_t *bytes
    ],
    result: "i32",
  },
  forge_device_memory: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // uint64_t *total
      "buffer", // uint64_t *free
    ],
    result: "i32",
  },
  forge_set_memory: {
    parameters: [
      "u32", // uint32_t device
      "u64", // uint64_t bytes
      "buffer", // uint64_t *bound
    ],
    result: "i32",
  },
  forge_streamed_bytes: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // uint64_t *all
      "buffer", // uint64_t *per_token
    ],
    result: "i32",
  },
  forge_error_text: {
    parameters: [
      "u32", // uint32_t handle
      "buffer", // char *text
      "u64", // uint64_t capacity
    ],
    result: "i32",
  },
  forge_release: {
    parameters: [
      "u32", // uint32_t handle
    ],
    result: "i32",
  },
} as const satisfies Deno.ForeignLibraryInterface;
