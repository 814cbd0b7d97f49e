#include "host_weight.h"

#include "error.h"

namespace forge {

HostWeight::HostWeight(WeightSource source) : parts(std::move(source.parts)) {
  rows = source.rows;
  cols = source.cols;
}

HostWeight::Location HostWeight::locate(uint64_t row) const {
  for (const WeightPart& part : parts) {
    if (row < part.rows) return {&part, row};
    row -= part.rows;
  }
  fail(FORGE_INTERNAL, "row ", row, " past the end of a weight of ", rows, " rows");
}

void HostWeight::read(uint64_t first_row, uint64_t n_rows, float* out) const {
  std::vector<uint8_t> scratch;
  for (uint64_t i = 0; i < n_rows; ++i) {
    const Location at = locate(first_row + i);
    const uint64_t stride = *row_bytes(at.part->type, cols);
    find_weight_type(static_cast<uint32_t>(at.part->type))
        ->dequantize(at.part->rows_at(at.row, 1, stride, scratch), out + i * cols, cols);
  }
}

std::vector<float> vector_of(const HostWeight& weight) {
  std::vector<float> values(weight.rows * weight.cols);
  weight.read(0, weight.rows, values.data());
  return values;
}

}  // namespace forge
