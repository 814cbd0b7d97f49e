/* Weights, from mapped files and from memory. */
#ifndef FORGE_ABI_WEIGHTS_H
#define FORGE_ABI_WEIGHTS_H

#include "base.h"

/* Element types of weights, numbered as in GGUF; from 256 on types that GGUF lacks. */
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
  FORGE_MXFP4 = 39,
  /* 32 weights of E4M3 under one F32 scale: see csrc/common/quant/fp8.h. */
  FORGE_FP8 = 256,
  /* 64 weights of E2M1 under four E4M3 scales and an F32 scale: see csrc/common/quant/fp4.h. */
  FORGE_FP4 = 257
};

/* Maps a file for reading. `bytes` receives its size. */
FORGE_API forge_status forge_file_map(uint32_t device, const char *path, uint32_t *file,
                                      uint64_t *bytes);

/* Packings of matrices whose rows are not blocks of a type. All numbers are little-endian. */
enum {
  /* codes[rows, cols] of 8-bit floats (E4M3, no infinities), each times the scale of its group.
     Becomes FP8, without loss; a block with a NaN becomes NaN. */
  FORGE_PACKED_F8_E4M3 = 0,
  /* codes[rows, cols / 8]: words of eight 4-bit codes of neighbouring columns, the first lowest;
     scale * (code - 8). Becomes Q4_0. */
  FORGE_PACKED_INT4 = 1,
  /* codes[cols / 8, rows]: words of eight codes of neighbouring columns; zeros[groups, rows / 8]:
     words of the zeros minus 1; scale * (code - zero). The optional `groups` is the group of each
     column (GPTQ). Becomes Q5_0, or Q4_1, which rounds scale * zero, with columns sorted by group
     (stable); or F32, with columns in their order. */
  FORGE_PACKED_GPTQ = 2,
  /* codes[cols, rows / 8] and zeros[groups, rows / 8]: words whose nibbles, from the lowest on, are
     rows 0, 2, 4, 6, 1, 3, 5, 7 of eight; scale * (code - zero). Becomes Q5_0 or Q4_1 (AWQ). */
  FORGE_PACKED_AWQ = 3,
  /* codes[rows, cols] of signed bytes, each times the scale of its group; becomes Q8_0. */
  FORGE_PACKED_INT8 = 4,
  /* codes[rows, cols]: floats of the type of their forge_tensor_place, without scales. Becomes any
     type that forge_quantize writes. A block with a NaN or an infinity becomes NaN. */
  FORGE_PACKED_FLOAT = 5,
  /* NVFP4. codes[rows, cols / 2]: bytes with the codes (E2M1) of two neighbouring columns, the
     first in the low bits; block_scales[rows, cols / 16] in E4M3; each weight times both scales, or
     divided by that of its group (NVFP4_DIVIDED). Becomes FP4, without loss, where blocks with a
     NaN become NaN; or F32. */
  FORGE_PACKED_NVFP4 = 6,
  FORGE_PACKED_NVFP4_DIVIDED = 7,
  /* codes: blocks of GGUF's type 40, four scales in E4M3 without signs and NaN (0x7f is 0), and for
     each 16 of 64 columns 8 bytes with columns i and i + 8. Scales may be missing (1). Becomes FP4
     or F32. */
  FORGE_PACKED_NVFP4_BLOCKS = 8
};

/* The location of a tensor of a packed matrix. */
typedef struct {
  uint32_t file; /* 0 if missing */
  uint32_t type; /* of scales, and of codes that are floats: FORGE_F32, FORGE_F16 or FORGE_BF16 */
  uint64_t offset;
} forge_tensor_place;

/*
 * A packed matrix. Each group of group_rows x group_cols elements has a scale. Scales have the
 * shape [ceil(rows / group_rows), ceil(cols / group_cols)]; for GPTQ and AWQ [cols / group_cols,
 * rows].
 */
typedef struct {
  uint32_t packing;
  uint32_t type; /* of the converted rows */
  uint64_t rows;
  uint64_t cols;
  uint64_t group_rows;
  uint64_t group_cols;
} forge_packed_matrix;

/*
 * The rows of a packed matrix, converted when they are read; the five `places` locate its codes,
 * scales, zeros, groups and block scales. The handle is used like a file that contains only these
 * rows.
 */
FORGE_API forge_status forge_rows_create(uint32_t device, const forge_packed_matrix *matrix,
                                         const forge_tensor_place *places, uint32_t *rows);

/* `rows` rows of a tensor that starts at byte `offset` of a mapped file, or of a handle of rows. */
typedef struct {
  uint32_t file;
  uint32_t type;
  uint64_t offset;
  uint64_t rows;
} forge_weight_part;

/*
 * Columns [first_col, first_col + n_cols) of rows of `cols` columns, whole blocks of their type.
 * The handle is used like a file that contains only these columns.
 */
FORGE_API forge_status forge_columns_create(uint32_t device, const forge_weight_part *part,
                                            uint64_t cols, uint64_t first_col, uint64_t n_cols,
                                            uint32_t *rows);

/*
 * A weight whose rows are the concatenation of its parts, each of its own type. The files stay
 * mapped while the weight lives. A backend may copy or repack it.
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
 * Quantises rows * cols floats to `out`, with the scales of least squared error. Types: F32, F16,
 * BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS.
 * `importance[cols]` has the factors of the squared errors in each column, finite and at least 0;
 * NULL for equal ones. Calls may run at the same time.
 */
FORGE_API forge_status forge_quantize(uint32_t device, uint32_t type, uint64_t rows, uint64_t cols,
                                      const float *data, uint64_t data_bytes,
                                      const float *importance, void *out, uint64_t out_bytes);

#endif
