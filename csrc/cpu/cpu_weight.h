#pragma once

#include <memory>
#include <mutex>

#include "packed_weight.h"

namespace forge::cpu {

// A weight in host memory. What reads single rows of it (embeddings) does so where it lies;
// products read a packed copy, and vectors are kept as floats. Both are made when a step first
// needs them.
class CpuWeight : public HostWeight {
 public:
  using HostWeight::HostWeight;

  // All of it as floats, dequantised at the first call: for norms, biases and frequencies.
  const float* floats() const;

  // For products with groups of that many rows; nothing of it is packed by this. The caller holds
  // the device's mutex.
  PackedWeight& packed(uint64_t group_rows) const;

 private:
  mutable std::once_flag once_;
  mutable std::vector<float> floats_;
  mutable std::vector<std::unique_ptr<PackedWeight>> packed_;  // by the size of groups
};

}  // namespace forge::cpu
