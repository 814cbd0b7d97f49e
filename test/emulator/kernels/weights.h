#pragma once

// Random weights of any type in device layout, and their values.

#include "support.h"

namespace kernel_test {

struct DeviceWeight {
  std::string format;  // the kernels' template argument
  u32 rows, cols;
  u64 row_stride;
  Buffer<u8> data;
  std::vector<float> values;  // [rows, cols], dequantized by csrc/common/quant

  const float* row(u32 r) const { return values.data() + u64(r) * cols; }
};

struct WeightKind {
  u32 type;  // number in csrc/abi/weights.h
  const char* format;
};
// The types with fast products.
inline const WeightKind fast_kinds[] = {{0, "FormatF32"}, {1, "FormatF16"}, {30, "FormatBF16"},
                                        {8, "FormatQ8_0"}, {2, "FormatQ4_0"}, {12, "FormatQ4_K"},
                                        {14, "FormatQ6_K"}, {256, "FormatFP8"}};
// The types handled by Blocks<type>.
inline const u32 other_types[] = {3,  6,  7,  10, 11, 13, 16, 17, 18,
                                  19, 20, 21, 22, 23, 29, 34, 35, 39, 257};
inline WeightKind other_kind(u32 type, std::string& storage) {
  storage = "Blocks<" + std::to_string(type) + ">";
  return {type, storage.c_str()};
}

// Rows of a file in device layout, each `stride` bytes long.
struct PlacedRows {
  u64 stride;
  Buffer<u8> data;
};
// Converts `rows` rows of `n_blocks` blocks each to device layout; cuda/weights.cpp,
// metal/weights.cpp.
PlacedRows place_rows(const WeightKind& kind, const std::vector<u8>& raw, u32 rows, u32 n_blocks);

// Weights of magnitude 1 / sqrt(cols), so that products have the magnitude of x.
DeviceWeight random_weight(Random& random, const WeightKind& kind, u32 rows, u32 cols);

// The same weight with rows `stride` bytes apart; empty if the device has no sparse memory.
DeviceWeight spread_rows(const DeviceWeight& weight, u64 stride);

// The tables of the codebook formats, in the layout that the library uploads.
const Buffer<u64>& codebooks();

// sum of row[i] * x[i].
double plain_dot(const float* row, const float* x, u32 n);

}  // namespace kernel_test
