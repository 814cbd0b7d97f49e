#include "cpu_weight.h"

namespace forge::cpu {

const float* CpuWeight::floats() const {
  std::call_once(once_, [this] {
    floats_.resize(rows * cols);
    read(0, rows, floats_.data());
  });
  return floats_.data();
}

const PackedWeight& CpuWeight::packed(uint64_t group_rows, CpuDevice& device) const {
  for (const auto& packed : packed_) {
    if (packed->group_rows() == group_rows) return *packed;
  }
  packed_.push_back(std::make_unique<const PackedWeight>(*this, group_rows, device));
  return *packed_.back();
}

}  // namespace forge::cpu
