/* Weights, from mapped files and from memory. */
#ifndef FORGE_ABI_WEIGHTS_H
#define FORGE_ABI_WEIGHTS_H

#include "base.h"

/* Element types of weights, under GGUF's numbers. */
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
  FORGE_MXFP4 = 39
};

/* Maps a file for reading. `bytes` receives its size. */
FORGE_API forge_status forge_file_map(uint32_t device, const char *path, uint32_t *file,
                                      uint64_t *bytes);

/* `rows` rows of a tensor that starts at byte `offset` of a mapped file. */
typedef struct {
  uint32_t file;
  uint32_t type;
  uint64_t offset;
  uint64_t rows;
} forge_weight_part;

/*
 * A weight whose rows are the concatenation of its parts; types may differ from part to part. The
 * files stay mapped while the weight lives. A backend may copy or repack.
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
 * Quantises rows * cols floats (round to nearest, no search) into `out`: for tests and synthetic
 * models. F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q6_K.
 */
FORGE_API forge_status forge_quantize(uint32_t device, uint32_t type, uint64_t rows, uint64_t cols,
                                      const float *data, uint64_t data_bytes, void *out,
                                      uint64_t out_bytes);

#endif
