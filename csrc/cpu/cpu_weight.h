#pragma once

#include <mutex>

#include "../common/host_weight.h"
#include "kernel_table.h"

namespace forge::cpu {

// A weight in host memory, used where it lies.
class CpuWeight : public HostWeight {
 public:
  using HostWeight::HostWeight;

  // All of it as floats, dequantised at the first call: for norms, biases and frequencies.
  const float* floats() const;

 private:
  mutable std::once_flag once_;
  mutable std::vector<float> floats_;
};

// Rows of one part, few enough for one call of a kernel.
struct RowBlock {
  const WeightPart* part;
  uint64_t first_in_part;
  uint32_t n_rows;
  uint64_t first_row;  // in its group
};

// A weight cut into row blocks, as products deal them out to threads. The rows form groups of equal
// size (experts), and a block lies inside one group and one part.
class RowBlocks {
 public:
  RowBlocks(const CpuWeight& weight, uint64_t group_rows);

  const CpuWeight& weight() const { return *weight_; }
  uint64_t group_rows() const { return group_rows_; }
  uint32_t count(uint64_t group) const { return first_[group + 1] - first_[group]; }
  const RowBlock& at(uint64_t group, uint32_t i) const { return blocks_[first_[group] + i]; }

 private:
  const CpuWeight* weight_;
  uint64_t group_rows_;
  std::vector<RowBlock> blocks_;
  std::vector<uint32_t> first_;  // of each group in blocks_, and the end
};

// What a kernel needs to know of a block: its type, where its rows are and how many there are.
MatmulBlock matmul_block(const RowBlocks& rows, const RowBlock& block);

}  // namespace forge::cpu
