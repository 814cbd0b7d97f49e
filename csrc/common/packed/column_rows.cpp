// Columns of a matrix that several devices divide.

#include <algorithm>
#include <cstring>

#include "../quant/weight_type.h"
#include "packed_matrix.h"

namespace forge {

namespace {

// Rows converted at a time, if the part converts them.
constexpr uint64_t kConvertedRows = 16;

class DividedColumns : public RowSource {
 public:
  DividedColumns(WeightPart part, const ColumnRange& columns)
      : part_(std::move(part)),
        whole_bytes_(row_bytes(part_.type, columns.all).value()),
        first_byte_(row_bytes(part_.type, columns.first).value()),
        bytes_(row_bytes(part_.type, columns.count).value()) {}

  void make(uint64_t first_row, uint64_t n_rows, uint8_t* out) const override {
    std::vector<uint8_t> scratch;
    for (uint64_t done = 0; done < n_rows; done += kConvertedRows) {
      const uint64_t n = std::min(kConvertedRows, n_rows - done);
      const uint8_t* rows = part_.rows_at(first_row + done, n, whole_bytes_, scratch);
      for (uint64_t row = 0; row < n; ++row, out += bytes_) {
        std::memcpy(out, rows + row * whole_bytes_ + first_byte_, bytes_);
      }
    }
  }

  // Other ranks read the rest of the same pages.
  std::span<const uint8_t> made_of(uint64_t, uint64_t) const override { return {}; }

 private:
  const WeightPart part_;
  const uint64_t whole_bytes_, first_byte_, bytes_;
};

}  // namespace

std::shared_ptr<const RowSource> column_rows(WeightPart part, const ColumnRange& columns) {
  return std::make_shared<DividedColumns>(std::move(part), columns);
}

}  // namespace forge
