#include "cpu_weight.h"

namespace forge::cpu {

const float* CpuWeight::floats() const {
  std::call_once(once_, [this] {
    floats_.resize(rows * cols);
    read(0, rows, floats_.data());
  });
  return floats_.data();
}

PackedWeight& CpuWeight::packed(uint64_t group_rows) const {
  for (const auto& packed : packed_) {
    if (packed->group_rows() == group_rows) return *packed;
  }
  packed_.push_back(std::make_unique<PackedWeight>(*this, group_rows));
  return *packed_.back();
}

}  // namespace forge::cpu
