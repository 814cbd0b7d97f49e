#pragma once

// Matrices of Hugging Face folders in formats that forge does not compute with. Their rows are
// converted to a weight type, a few at a time, when they are read. Layouts: abi/weights.h. Also
// rows of which a device holds some columns.

#include <cstdint>
#include <memory>

#include "../backend.h"

namespace forge {

// A tensor of a packed matrix, in memory that `owner` keeps valid; data is null for a missing
// tensor.
struct PackedTensor {
  const uint8_t* data = nullptr;
  WeightType type{};  // of scales and floats
  std::shared_ptr<const void> owner;
};

// All sizes, offsets and group indices have been checked.
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
  PackedTensor block_scales;
};

// Columns of the blocks that rows are converted to.
inline constexpr uint64_t kMadeBlock = 32;
// Columns of NVFP4 that share a scale in E4M3.
inline constexpr uint64_t kScaleCols = 16;

// Returns the scale with this index.
float scale_at(const PackedTensor& scales, uint64_t index);

std::shared_ptr<const RowSource> f8_rows(PackedMatrix matrix);
std::shared_ptr<const RowSource> int8_rows(PackedMatrix matrix);
std::shared_ptr<const RowSource> int4_rows(PackedMatrix matrix);
std::shared_ptr<const RowSource> gptq_rows(PackedMatrix matrix);
std::shared_ptr<const RowSource> awq_rows(PackedMatrix matrix);
std::shared_ptr<const RowSource> nvfp4_rows(PackedMatrix matrix, bool divides);
std::shared_ptr<const RowSource> nvfp4_block_rows(PackedMatrix matrix);
std::shared_ptr<const RowSource> float_rows(PackedMatrix matrix);

// Columns of rows of `all` columns; whole blocks.
struct ColumnRange {
  uint64_t all;
  uint64_t first;
  uint64_t count;
};

// Returns the columns of a part's rows.
std::shared_ptr<const RowSource> column_rows(WeightPart part, const ColumnRange& columns);

}  // namespace forge
