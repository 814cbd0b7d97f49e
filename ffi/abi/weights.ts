/** The functions of `csrc/abi/weights.h`. */
export const weightSymbols = {
  forge_file_map: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // const char *path
      "buffer", // uint32_t *file
      "buffer", // uint64_t *bytes
    ],
    result: "i32",
  },
  forge_rows_create: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // const forge_packed_matrix *matrix
      "buffer", // const forge_tensor_place *places
      "buffer", // uint32_t *rows
    ],
    result: "i32",
  },
  forge_columns_create: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // const forge_weight_part *part
      "u64", // uint64_t cols
      "u64", // uint64_t first_col
      "u64", // uint64_t n_cols
      "buffer", // uint32_t *rows
    ],
    result: "i32",
  },
  forge_weight_create: {
    parameters: [
      "u32", // uint32_t device
      "buffer", // const forge_weight_part *parts
      "u64", // uint64_t n_parts
      "u64", // uint64_t cols
      "buffer", // uint32_t *weight
    ],
    result: "i32",
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
    result: "i32",
  },
  forge_weight_read: {
    parameters: [
      "u32", // uint32_t weight
      "u64", // uint64_t first_row
      "u64", // uint64_t n_rows
      "buffer", // float *out
      "u64", // uint64_t bytes
    ],
    result: "i32",
  },
  forge_quantize: {
    parameters: [
      "u32", // uint32_t device
      "u32", // uint32_t type
      "u64", // uint64_t rows
      "u64", // uint64_t cols
      "buffer", // const float *data
      "u64", // uint64_t data_bytes
      "buffer", // const float *importance
      "buffer", // void *out
      "u64", // uint64_t out_bytes
    ],
    result: "i32",
  },
} as const satisfies Deno.ForeignLibraryInterface;
