#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "../quant/legacy.h"
#include "packed_matrix.h"

namespace forge {

namespace {

// E4M3 (Micikevicius et al., "FP8 Formats for Deep Learning", arXiv:2209.05433): a sign, four bits
// of exponent with a bias of 7, three of mantissa; no infinities, and all ones are NaN.
constexpr uint32_t kMagnitude = 0x7f;
constexpr uint32_t kNan = 0x7f;

constexpr uint32_t exponent_of(uint32_t code) { return std::max((code & kMagnitude) >> 3, 1u); }

// The codes of a block become whole numbers of one unit: 1/8 of that of the largest exponent's last
// bit, so that the largest numbers are up to 120, those of the next three exponents are exact, and
// smaller ones are rounded to the nearest number, halves to even.
constexpr int8_t level_of(uint32_t code, uint32_t top_exponent) {
  const uint32_t fraction = code & 7;
  const uint32_t significand = (code & kMagnitude) >> 3 == 0 ? fraction : fraction + 8;
  const uint32_t shift = top_exponent - exponent_of(code);
  const uint32_t level = shift == 0 ? significand * 8 : shift_right_to_even(significand * 8, shift);
  return static_cast<int8_t>((code & 0x80) != 0 ? -static_cast<int>(level)
                                                 : static_cast<int>(level));
}

using Levels = std::array<std::array<int8_t, 256>, 16>;

constexpr Levels all_levels() {
  Levels levels{};
  for (uint32_t top = 1; top < 16; ++top) {
    for (uint32_t code = 0; code < 256; ++code) {
      if (exponent_of(code) <= top) levels[top][code] = level_of(code, top);
    }
  }
  return levels;
}

constexpr Levels kLevels = all_levels();

void make_f8(const uint8_t* codes, float scale, BlockQ8_0& block) {
  uint32_t largest = 0;
  for (uint64_t i = 0; i < kMadeBlock; ++i) {
    largest = std::max(largest, static_cast<uint32_t>(codes[i]) & kMagnitude);
  }
  const uint32_t top = exponent_of(largest);
  // The unit is 2^(top - 7 - 3 - 3).
  const float unit = largest == kNan ? std::numeric_limits<float>::quiet_NaN()
                                     : std::ldexp(scale, static_cast<int>(top) - 13);
  block.d = PackedF16::from(unit);
  for (uint64_t i = 0; i < kMadeBlock; ++i) block.qs[i] = kLevels[top][codes[i]];
}

// Whole numbers are what blocks hold.
void make_int8(const uint8_t* codes, float scale, BlockQ8_0& block) {
  block.d = PackedF16::from(scale);
  std::memcpy(block.qs, codes, kMadeBlock);
}

using MakeBlock = void (*)(const uint8_t* codes, float scale, BlockQ8_0& block);

// Rows of which each byte is a number.
template <MakeBlock make_block>
class ByteRows : public RowSource {
 public:
  explicit ByteRows(PackedMatrix matrix) : matrix_(std::move(matrix)) {}

  void make(uint64_t first_row, uint64_t n_rows, uint8_t* out) const override {
    const uint64_t n_groups = (matrix_.cols + matrix_.group_cols - 1) / matrix_.group_cols;
    auto* block = reinterpret_cast<BlockQ8_0*>(out);
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
  return std::make_shared<const ByteRows<make_f8>>(std::move(matrix));
}

std::shared_ptr<const RowSource> int8_rows(PackedMatrix matrix) {
  return std::make_shared<const ByteRows<make_int8>>(std::move(matrix));
}

}  // namespace forge
