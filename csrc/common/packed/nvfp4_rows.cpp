#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "../quant/fp4.h"
#include "packed_matrix.h"

namespace forge {

namespace {

using Codes = std::array<uint8_t, kMadeBlock>;

// The codes and E4M3 scales of 32 columns.
struct Columns {
  Codes codes;
  uint8_t scales[2];
};

// Blocks of FP4, or floats if a row is no whole number of blocks. A group is some whole rows.
class Nvfp4Rows : public RowSource {
 public:
  explicit Nvfp4Rows(PackedMatrix matrix) : matrix_(std::move(matrix)) {}

  void make(uint64_t first_row, uint64_t n_rows, uint8_t* out) const override {
    const bool is_block = matrix_.type == WeightType::FP4;
    for (uint64_t row = first_row; row < first_row + n_rows; ++row) {
      const auto scale = std::bit_cast<uint32_t>(group_scale(row / matrix_.group_rows));
      for (uint64_t col = 0; col < matrix_.cols;) {
        BlockFP4 block = {PackedU32::from(scale), {}, {}};
        const uint64_t end = col + (is_block ? BlockFP4::elements : kMadeBlock);
        for (uint64_t half = 0; col < end; ++half, col += kMadeBlock) {
          put(columns_at(row, col), half, block);
        }
        if (is_block) {
          *reinterpret_cast<BlockFP4*>(out) = block;
          out += sizeof block;
          continue;
        }
        float values[BlockFP4::elements];
        dequantize_block(block, values);
        for (uint64_t i = 0; i < kMadeBlock; ++i, out += 4) {
          *reinterpret_cast<PackedU32*>(out) = PackedU32::from(std::bit_cast<uint32_t>(values[i]));
        }
      }
    }
  }

  std::span<const uint8_t> made_of(uint64_t first_row, uint64_t n_rows) const override {
    const uint64_t row_bytes = code_row_bytes();
    return {matrix_.codes.data + first_row * row_bytes, n_rows * row_bytes};
  }

 protected:
  const PackedMatrix& matrix() const { return matrix_; }

 private:
  virtual float group_scale(uint64_t group) const = 0;
  virtual uint64_t code_row_bytes() const = 0;
  // Returns 32 columns of a row.
  virtual Columns columns_at(uint64_t row, uint64_t col) const = 0;

  // Stores 32 columns as one half of a block.
  static void put(const Columns& from, uint64_t half, BlockFP4& block) {
    for (uint64_t i = 0; i < kMadeBlock / 2; ++i) {
      block.qs[half * kMadeBlock / 2 + i] =
          static_cast<uint8_t>(from.codes[i] | from.codes[i + kMadeBlock / 2] << 4);
    }
    for (uint64_t i = 0; i < 2; ++i) {
      block.scales[2 * half + i] = from.scales[i];
      if ((from.scales[i] & e4m3_nan) != e4m3_nan) continue;
      block.d = PackedU32::from(
          std::bit_cast<uint32_t>(std::numeric_limits<float>::quiet_NaN()));
    }
  }

  PackedMatrix matrix_;
};

// Codes and block scales in tensors of their own.
class FolderRows : public Nvfp4Rows {
 public:
  FolderRows(PackedMatrix matrix, bool divides)
      : Nvfp4Rows(std::move(matrix)), divides_(divides) {}

 private:
  float group_scale(uint64_t group) const override {
    const float scale = scale_at(matrix().scales, group);
    return divides_ ? 1.0f / scale : scale;
  }
  uint64_t code_row_bytes() const override { return matrix().cols / 2; }

  Columns columns_at(uint64_t row, uint64_t col) const override {
    const uint64_t at = row * matrix().cols + col;
    Columns out;
    for (uint64_t i = 0; i < kMadeBlock; ++i) {
      out.codes[i] = static_cast<uint8_t>(nibble(matrix().codes.data[(at + i) / 2],
                                                 static_cast<uint32_t>(i)));
    }
    std::copy_n(matrix().block_scales.data + at / kScaleCols, 2, out.scales);
    return out;
  }

  bool divides_;
};

// Blocks of GGUF: 4 scales and 32 bytes of codes for 64 columns.
class BlockRows : public Nvfp4Rows {
 public:
  using Nvfp4Rows::Nvfp4Rows;

 private:
  static constexpr uint64_t kCols = 64, kScales = 4, kBytes = 36;

  float group_scale(uint64_t group) const override {
    return matrix().scales.data ? scale_at(matrix().scales, group) : 1.0f;
  }
  uint64_t code_row_bytes() const override { return matrix().cols / kCols * kBytes; }

  Columns columns_at(uint64_t row, uint64_t col) const override {
    const uint8_t* block = matrix().codes.data + row * code_row_bytes() + col / kCols * kBytes;
    const uint64_t half = col % kCols / kMadeBlock;
    Columns out;
    for (uint64_t s = 0; s < 2; ++s) {
      const uint8_t* qs = block + kScales + (2 * half + s) * kScaleCols / 2;
      for (uint64_t i = 0; i < kScaleCols; ++i) {
        out.codes[s * kScaleCols + i] =
            static_cast<uint8_t>(nibble(qs[i % (kScaleCols / 2)], i < kScaleCols / 2 ? 0 : 1));
      }
      const uint8_t scale = block[2 * half + s] & 0x7f;
      out.scales[s] = scale == e4m3_nan ? uint8_t{0} : scale;
    }
    return out;
  }
};

}  // namespace

std::shared_ptr<const RowSource> nvfp4_rows(PackedMatrix matrix, bool divides) {
  return std::make_shared<const FolderRows>(std::move(matrix), divides);
}

std::shared_ptr<const RowSource> nvfp4_block_rows(PackedMatrix matrix) {
  return std::make_shared<const BlockRows>(std::move(matrix));
}

}  // namespace forge
