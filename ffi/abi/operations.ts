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
  forge_operations: {
    parameters: [
      "buffer", // char *text
      "u64", // uint64_t capacity
    ],
    result: "i32",
  },
  forge_record: {
    parameters: [
      "u32", // uint32_t step
      "buffer", // const char *operation
      "buffer", // const uint32_t *operands
      "u64", // uint64_t n_words
      "buffer", // uint32_t *out
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
