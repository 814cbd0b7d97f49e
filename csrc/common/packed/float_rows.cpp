#include <cstring>
#include <vector>

#include "../quant/quantize.h"
#include "packed_matrix.h"

namespace forge {

namespace {

// Rows of floats that are quantised as they are read.
class FloatRows : public RowSource {
 public:
  explicit FloatRows(PackedMatrix matrix)
      : matrix_(std::move(matrix)),
        from_(*find_weight_type(static_cast<uint32_t>(matrix_.codes.type))),
        to_(*find_weight_type(static_cast<uint32_t>(matrix_.type))) {}

  void make(uint64_t first_row, uint64_t n_rows, uint8_t* out) const override {
    const uint64_t from_bytes = matrix_.cols * from_.block_bytes;
    const uint64_t n_blocks = matrix_.cols / to_.block_elements;
    std::vector<float> values(matrix_.cols);
    for (uint64_t row = first_row; row < first_row + n_rows; ++row) {
      from_.dequantize(matrix_.codes.data + row * from_bytes, values.data(), matrix_.cols);
      if (!quantize(to_.type, values.data(), out, matrix_.cols)) {
        quantize_finite_blocks(values.data(), out);
      }
      out += n_blocks * to_.block_bytes;
    }
  }

  std::span<const uint8_t> made_of(uint64_t first_row, uint64_t n_rows) const override {
    const uint64_t from_bytes = matrix_.cols * from_.block_bytes;
    return {matrix_.codes.data + first_row * from_bytes, n_rows * from_bytes};
  }

 private:
  // Blocks with a NaN or an infinity become NaN: a scale with all bits set is NaN.
  void quantize_finite_blocks(const float* values, uint8_t* out) const {
    for (uint64_t col = 0; col < matrix_.cols; col += to_.block_elements) {
      if (!quantize(to_.type, values + col, out, to_.block_elements)) {
        std::memset(out, 0xff, to_.block_bytes);
      }
      out += to_.block_bytes;
    }
  }

  PackedMatrix matrix_;
  const WeightTypeInfo& from_;
  const WeightTypeInfo& to_;
};

}  // namespace

std::shared_ptr<const RowSource> float_rows(PackedMatrix matrix) {
  return std::make_shared<const FloatRows>(std::move(matrix));
}

}  // namespace forge
