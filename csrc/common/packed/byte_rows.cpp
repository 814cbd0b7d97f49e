#include <algorithm>
#include <cstring>
#include <limits>

#include "../quant/fp8.h"
#include "../quant/legacy.h"
#include "packed_matrix.h"

namespace forge {

namespace {

void make_f8(const uint8_t* codes, float scale, BlockFP8& block) {
  const bool has_nan = std::any_of(codes, codes + kMadeBlock, [](uint8_t code) {
    return (code & e4m3_nan) == e4m3_nan;
  });
  const float d = has_nan ? std::numeric_limits<float>::quiet_NaN() : scale;
  block.d = PackedU32::from(std::bit_cast<uint32_t>(d));
  std::memcpy(block.qs, codes, kMadeBlock);
}

// Blocks of Q8_0 hold the codes unchanged.
void make_int8(const uint8_t* codes, float scale, BlockQ8_0& block) {
  block.d = PackedF16::from(scale);
  std::memcpy(block.qs, codes, kMadeBlock);
}

// Rows with one code per byte.
template <class Block, void (*make_block)(const uint8_t* codes, float scale, Block& block)>
class ByteRows : public RowSource {
 public:
  explicit ByteRows(PackedMatrix matrix) : matrix_(std::move(matrix)) {}

  void make(uint64_t first_row, uint64_t n_rows, uint8_t* out) const override {
    const uint64_t n_groups = (matrix_.cols + matrix_.group_cols - 1) / matrix_.group_cols;
    auto* block = reinterpret_cast<Block*>(out);
    for (uint64_t row = first_row; row < first_row + n_rows; ++row) {
      const uint8_t* codes = matrix_.codes.data + row * matrix_.cols;
      const uint64_t first_group = row / matrix_.group_rows * n_groups;
      for (uint64_t col = 0; col < matrix_.cols; col += kMadeBlock) {
        const float scale = scale_at(matrix_.scales, first_group + col / matrix_.group_cols);
        make_block(codes + col, scale, *block++);
      }
    }
  }

  std::span<const uint8_t> made_of(uint64_t first_row, uint64_t n_rows) const override {
    return {matrix_.codes.data + first_row * matrix_.cols, n_rows * matrix_.cols};
  }

 private:
  PackedMatrix matrix_;
};

}  // namespace

std::shared_ptr<const RowSource> f8_rows(PackedMatrix matrix) {
  return std::make_shared<const ByteRows<BlockFP8, make_f8>>(std::move(matrix));
}

std::shared_ptr<const RowSource> int8_rows(PackedMatrix matrix) {
  return std::make_shared<const ByteRows<BlockQ8_0, make_int8>>(std::move(matrix));
}

}  // namespace forge
