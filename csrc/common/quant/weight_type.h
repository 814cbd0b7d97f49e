#pragma once

// The element types of weights forge reads, and how each is laid out and dequantised.

#include <cstdint>
#include <optional>

namespace forge {

// Numbered as in GGUF; the gaps are types that hold no weights or that GGUF has withdrawn. Types
// that GGUF lacks are numbered from 256.
enum class WeightType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ1_S = 19,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  IQ1_M = 29,
  BF16 = 30,
  TQ1_0 = 34,
  TQ2_0 = 35,
  MXFP4 = 39,
  FP8 = 256,
  FP4 = 257,
};

struct WeightTypeInfo {
  WeightType type;
  const char* name;         ///< for example "Q4_K"
  uint32_t block_elements;  ///< weights in a block; a row is a whole number of blocks
  uint32_t block_bytes;     ///< bytes of a block; blocks and rows follow one another unpadded

  // Dequantises `n_elements` weights, a multiple of block_elements. Reads exactly
  // n_elements / block_elements * block_bytes bytes from `blocks`, which may have any alignment.
  void (*dequantize)(const uint8_t* blocks, float* out, uint64_t n_elements);
};

// The type with the number `id`, or nullptr when forge does not read it.
const WeightTypeInfo* find_weight_type(uint32_t id);

// The bytes of a row of `cols` weights; nullopt when `type` is unknown, `cols` is not a whole
// number of blocks or the size does not fit 64 bits.
std::optional<uint64_t> row_bytes(WeightType type, uint64_t cols);

}  // namespace forge
