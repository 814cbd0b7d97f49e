#pragma once

#include <cstring>
#include <vector>

#include "../common/backend.h"

namespace forge::reference {

// Slots one after another, each a row-major matrix of floats.
class ReferenceState : public StateCache {
 public:
  explicit ReferenceState(const StateShape& cache_shape)
      : data_(uint64_t{cache_shape.n_slots} * cache_shape.rows * cache_shape.cols) {
    shape = cache_shape;
    slot_bytes = uint64_t{shape.rows} * shape.cols * sizeof(float);
  }

  void copy(uint32_t from, uint32_t to) override {
    std::memcpy(slot(to), slot(from), slot_bytes);
  }
  void read(uint32_t index, uint8_t* data) const override {
    std::memcpy(data, data_.data() + offset(index), slot_bytes);
  }
  void write(uint32_t index, const uint8_t* data) override {
    std::memcpy(slot(index), data, slot_bytes);
  }

  // [rows, cols]
  float* slot(uint32_t index) { return data_.data() + offset(index); }

 private:
  uint64_t offset(uint32_t index) const { return uint64_t{index} * shape.rows * shape.cols; }

  std::vector<float> data_;
};

}  // namespace forge::reference
