#pragma once

// Matrices of Hugging Face folders whose rows are no blocks of a type that forge computes with.
// Each becomes rows of such a type, a few at a time, when it is read; forge.h says how they lie.

#include <cstdint>
#include <memory>

#include "../quant/weight_type.h"
#include "../row_source.h"

namespace forge {

// A tensor of a packed matrix, in memory that `owner` keeps valid; data is null where there is
// none.
struct PackedTensor {
  const uint8_t* data = nullptr;
  WeightType type{};  // of scales and floats
  std::shared_ptr<const void> owner;
};

// All sizes and places have been checked; `groups` are in range.
struct PackedMatrix {
  WeightType type;
  uint64_t rows;
  uint64_t cols;
  uint64_t group_rows;
  uint64_t group_cols;
  PackedTensor codes;
  PackedTensor scales;
  PackedTensor zeros;
  PackedTensor groups;
};

// Columns of a block that rows are made of.
inline constexpr uint64_t kMadeBlock = 32;

// The scale with this number.
float scale_at(const PackedTensor& scales, uint64_t index);

std::shared_ptr<const RowSource> f8_rows(PackedMatrix matrix);
std::shared_ptr<const RowSource> int8_rows(PackedMatrix matrix);
std::shared_ptr<const RowSource> int4_rows(PackedMatrix matrix);
std::shared_ptr<const RowSource> gptq_rows(PackedMatrix matrix);
std::shared_ptr<const RowSource> awq_rows(PackedMatrix matrix);
std::shared_ptr<const RowSource> float_rows(PackedMatrix matrix);

}  // namespace forge
