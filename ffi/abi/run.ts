/** The functions of `csrc/abi/run.h`. */
export const runSymbols = {
  forge_step_run: {
    parameters: [
      "u32", // uint32_t step
      "buffer", // const void *inputs
      "u64", // uint64_t input_bytes
      "buffer", // void *results
      "u64", // uint64_t result_bytes
      "buffer", // const forge_step_control *control
    ],
    result: "i32",
    nonblocking: true,
  },
  forge_step_time: {
    parameters: [
      "u32", // uint32_t step
      "buffer", // uint64_t *nanoseconds
    ],
    result: "i32",
  },
  forge_step_profile: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t enabled
    ],
    result: "i32",
  },
  forge_step_spans: {
    parameters: [
      "u32", // uint32_t step
      "buffer", // char *text
      "u64", // uint64_t capacity
      "buffer", // uint64_t *bytes
    ],
    result: "i32",
  },
  forge_step_keep: {
    parameters: [
      "u32", // uint32_t step
      "u32", // uint32_t value
    ],
    result: "i32",
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
    result: "i32",
  },
} as const satisfies Deno.ForeignLibraryInterface;
