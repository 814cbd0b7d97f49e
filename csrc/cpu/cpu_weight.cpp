#include "cpu_weight.h"

#include <algorithm>

namespace forge::cpu {

const float* CpuWeight::floats() const {
  std::call_once(once_, [this] {
    floats_.resize(rows * cols);
    read(0, rows, floats_.data());
  });
  return floats_.data();
}

RowBlocks::RowBlocks(const CpuWeight& weight, uint64_t group_rows)
    : weight_(&weight), group_rows_(group_rows) {
  uint64_t row = 0;
  for (const WeightPart& part : weight.parts) {
    uint64_t in_part = 0;
    while (in_part < part.rows) {
      const uint64_t in_group = row % group_rows;
      if (in_group == 0) first_.push_back(static_cast<uint32_t>(blocks_.size()));
      const uint64_t n =
          std::min({uint64_t{kMatmulRows}, part.rows - in_part, group_rows - in_group});
      blocks_.push_back({&part, in_part, static_cast<uint32_t>(n), in_group});
      in_part += n;
      row += n;
    }
  }
  first_.push_back(static_cast<uint32_t>(blocks_.size()));
}

MatmulBlock matmul_block(const RowBlocks& rows, const RowBlock& block) {
  const uint64_t cols = rows.weight().cols;
  const uint64_t bytes = *row_bytes(block.part->type, cols);
  MatmulBlock out{};
  out.type = block.part->type;
  out.dequantize = find_weight_type(static_cast<uint32_t>(out.type))->dequantize;
  out.weights = block.part->data + block.first_in_part * bytes;
  out.row_bytes = bytes;
  out.cols = cols;
  out.n_rows = block.n_rows;
  out.first_row = block.first_row;
  return out;
}

}  // namespace forge::cpu
