#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <vector>

#include "../quant/legacy.h"
#include "packed_matrix.h"

namespace forge {

namespace {

// Codes in a word.
constexpr uint64_t kPerWord = 8;

uint32_t word_at(const PackedTensor& tensor, uint64_t index) {
  return reinterpret_cast<const PackedU32*>(tensor.data)[index].value();
}

uint32_t nibble_of(uint32_t word, uint64_t index) { return (word >> (4 * index)) & 0xf; }

using Codes = std::array<uint8_t, kMadeBlock>;

// Returns the codes of 32 columns of a row; word_of(col) has the codes of eight columns.
template <class WordOf>
Codes codes_of(uint64_t col, WordOf word_of) {
  Codes codes;
  for (uint64_t i = 0; i < kMadeBlock; i += kPerWord) {
    const uint32_t word = word_of(col + i);
    for (uint64_t k = 0; k < kPerWord; ++k) {
      codes[i + k] = static_cast<uint8_t>(nibble_of(word, k));
    }
  }
  return codes;
}

// Stores codes i and i + 16 in byte i, as the blocks of GGUF do.
void pack_halves(const Codes& codes, uint8_t* qs) {
  for (uint64_t i = 0; i < kMadeBlock / 2; ++i) {
    qs[i] = static_cast<uint8_t>(codes[i] | codes[i + kMadeBlock / 2] << 4);
  }
}

class Int4Rows : public RowSource {
 public:
  explicit Int4Rows(PackedMatrix matrix) : matrix_(std::move(matrix)) {}

  void make(uint64_t first_row, uint64_t n_rows, uint8_t* out) const override {
    const uint64_t n_groups = (matrix_.cols + matrix_.group_cols - 1) / matrix_.group_cols;
    auto* block = reinterpret_cast<BlockQ4_0*>(out);
    for (uint64_t row = first_row; row < first_row + n_rows; ++row) {
      for (uint64_t col = 0; col < matrix_.cols; col += kMadeBlock, ++block) {
        const Codes codes = codes_of(col, [&](uint64_t at) {
          return word_at(matrix_.codes, (row * matrix_.cols + at) / kPerWord);
        });
        const uint64_t group = row / matrix_.group_rows * n_groups + col / matrix_.group_cols;
        block->d = PackedF16::from(scale_at(matrix_.scales, group));
        pack_halves(codes, block->qs);
      }
    }
  }

  std::span<const uint8_t> made_of(uint64_t first_row, uint64_t n_rows) const override {
    const uint64_t row_bytes = matrix_.cols / 2;
    return {matrix_.codes.data + first_row * row_bytes, n_rows * row_bytes};
  }

 private:
  PackedMatrix matrix_;
};

// Shared by GPTQ and AWQ: the codes of a column are consecutive, so that a row is gathered from all
// over the tensor, and each group of columns of a row has a scale and a zero.
class ColumnRows : public RowSource {
 public:
  explicit ColumnRows(PackedMatrix matrix) : matrix_(std::move(matrix)) {}

  void make(uint64_t first_row, uint64_t n_rows, uint8_t* out) const override {
    const uint64_t row_bytes = *forge::row_bytes(matrix_.type, matrix_.cols);
    const uint64_t block_bytes = row_bytes / (matrix_.cols / kMadeBlock);
    for (uint64_t col = 0; col < matrix_.cols; col += kMadeBlock) {
      for (uint64_t i = 0; i < n_rows; ++i) {
        uint8_t* block = out + i * row_bytes + col / kMadeBlock * block_bytes;
        const Codes codes = codes_at(first_row + i, col);
        switch (matrix_.type) {
          case WeightType::Q4_1:
            make_q4_1(first_row + i, col, codes, *reinterpret_cast<BlockQ4_1*>(block));
            break;
          case WeightType::Q5_0:
            make_q5_0(first_row + i, col, codes, *reinterpret_cast<BlockQ5_0*>(block));
            break;
          default: make_floats(first_row + i, col, codes, block);
        }
      }
    }
  }

  std::span<const uint8_t> made_of(uint64_t, uint64_t) const override { return {}; }

 protected:
  const PackedMatrix& matrix() const { return matrix_; }
  // Returns the group of a converted column; a block is inside one group.
  virtual uint64_t group_of(uint64_t col) const { return col / matrix_.group_cols; }

 private:
  // Returns the codes of 32 converted columns of a row.
  virtual Codes codes_at(uint64_t row, uint64_t col) const = 0;
  virtual uint32_t zero_at(uint64_t group, uint64_t row) const = 0;
  float scale_of(uint64_t group, uint64_t row) const {
    return scale_at(matrix_.scales, group * matrix_.rows + row);
  }

  void make_q4_1(uint64_t row, uint64_t col, const Codes& codes, BlockQ4_1& block) const {
    const uint64_t group = group_of(col);
    const float scale = scale_of(group, row);
    block.d = PackedF16::from(scale);
    block.m = PackedF16::from(-scale * static_cast<float>(zero_at(group, row)));
    pack_halves(codes, block.qs);
  }

  // A code minus a zero of up to 16 is -16 to 15, which five bits hold.
  void make_q5_0(uint64_t row, uint64_t col, const Codes& codes, BlockQ5_0& block) const {
    const uint64_t group = group_of(col);
    const uint32_t zero = zero_at(group, row);
    block.d = PackedF16::from(scale_of(group, row));
    Codes low;
    uint32_t high = 0;
    for (uint64_t i = 0; i < kMadeBlock; ++i) {
      const uint32_t field = codes[i] + 16 - zero;
      low[i] = static_cast<uint8_t>(field & 0xf);
      high |= (field >> 4) << i;
    }
    block.qh = PackedU32::from(high);
    pack_halves(low, block.qs);
  }

  void make_floats(uint64_t row, uint64_t col, const Codes& codes, uint8_t* out) const {
    for (uint64_t i = 0; i < kMadeBlock; ++i) {
      const uint64_t group = group_of(col + i);
      const auto steps = static_cast<float>(codes[i]) - static_cast<float>(zero_at(group, row));
      reinterpret_cast<PackedU32*>(out)[i] =
          PackedU32::from(std::bit_cast<uint32_t>(scale_of(group, row) * steps));
    }
  }

  PackedMatrix matrix_;
};

class GptqRows : public ColumnRows {
 public:
  explicit GptqRows(PackedMatrix packed) : ColumnRows(std::move(packed)) {
    if (!matrix().groups.data) return;
    order_.resize(matrix().cols);
    std::iota(order_.begin(), order_.end(), 0u);
    const auto group = [&](uint32_t col) { return word_at(matrix().groups, col); };
    if (matrix().type != WeightType::F32) std::ranges::stable_sort(order_, {}, group);
    for (const uint32_t col : order_) groups_.push_back(group(col));
    if (std::ranges::is_sorted(order_)) order_.clear();
  }

 protected:
  uint64_t group_of(uint64_t col) const override {
    return groups_.empty() ? ColumnRows::group_of(col) : groups_[col];
  }

 private:
  Codes codes_at(uint64_t row, uint64_t col) const override {
    if (!order_.empty()) {
      Codes codes;
      for (uint64_t i = 0; i < kMadeBlock; ++i) {
        const uint32_t from = order_[col + i];
        const uint32_t word = word_at(matrix().codes, from / kPerWord * matrix().rows + row);
        codes[i] = static_cast<uint8_t>(nibble_of(word, from % kPerWord));
      }
      return codes;
    }
    return codes_of(col, [&](uint64_t at) {
      return word_at(matrix().codes, at / kPerWord * matrix().rows + row);
    });
  }

  uint32_t zero_at(uint64_t group, uint64_t row) const override {
    const uint64_t word = (group * matrix().rows + row) / kPerWord;
    return nibble_of(word_at(matrix().zeros, word), row % kPerWord) + 1;
  }

  std::vector<uint32_t> order_;   // the source column of each converted column; empty if the same
  std::vector<uint32_t> groups_;  // of converted columns; empty if group_cols determines them
};

class AwqRows : public ColumnRows {
 public:
  using ColumnRows::ColumnRows;

 private:
  // The nibble of each of eight neighbouring rows.
  static constexpr uint8_t kPlaces[kPerWord] = {0, 4, 1, 5, 2, 6, 3, 7};

  static uint32_t code(const PackedTensor& tensor, uint64_t index) {
    return nibble_of(word_at(tensor, index / kPerWord), kPlaces[index % kPerWord]);
  }

  Codes codes_at(uint64_t row, uint64_t col) const override {
    Codes codes;
    for (uint64_t i = 0; i < kMadeBlock; ++i) {
      codes[i] = static_cast<uint8_t>(code(matrix().codes, (col + i) * matrix().rows + row));
    }
    return codes;
  }

  uint32_t zero_at(uint64_t group, uint64_t row) const override {
    return code(matrix().zeros, group * matrix().rows + row);
  }
};

}  // namespace

float scale_at(const PackedTensor& scales, uint64_t index) {
  switch (scales.type) {
    case WeightType::F16:
      return reinterpret_cast<const PackedF16*>(scales.data)[index].value();
    case WeightType::BF16:
      return bf16_to_f32(reinterpret_cast<const PackedU16*>(scales.data)[index].value());
    default:
      return std::bit_cast<float>(reinterpret_cast<const PackedU32*>(scales.data)[index].value());
  }
}

std::shared_ptr<const RowSource> int4_rows(PackedMatrix matrix) {
  return std::make_shared<const Int4Rows>(std::move(matrix));
}

std::shared_ptr<const RowSource> gptq_rows(PackedMatrix matrix) {
  return std::make_shared<const GptqRows>(std::move(matrix));
}

std::shared_ptr<const RowSource> awq_rows(PackedMatrix matrix) {
  return std::make_shared<const AwqRows>(std::move(matrix));
}

}  // namespace forge
