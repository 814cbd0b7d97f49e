#include "cpu_state.h"

#include <algorithm>
#include <cstring>

namespace forge::cpu {

namespace {

uint64_t n_panels(uint32_t cols) { return (uint64_t{cols} + kStateColumns - 1) / kStateColumns; }

}  // namespace

CpuState::CpuState(const StateShape& cache_shape) {
  shape = cache_shape;
  slot_bytes = n_panels(shape.cols) * kStateColumns * shape.rows * sizeof(float);
  memory_ = Memory(slot_bytes * shape.n_slots);
}

float* CpuState::slot(uint32_t index) const {
  return reinterpret_cast<float*>(memory_.data() + index * slot_bytes);
}

void CpuState::copy_slot(uint32_t from, uint32_t to) {
  std::memcpy(slot(to), slot(from), slot_bytes);
}

void CpuState::read_slot(uint32_t index, uint8_t* data) const {
  std::memcpy(data, slot(index), slot_bytes);
}

void CpuState::write_slot(uint32_t index, const uint8_t* data) {
  std::memcpy(slot(index), data, slot_bytes);
}

void CpuState::read_rows(uint32_t index, float* rows) const {
  const float* panel = slot(index);
  for (uint64_t column = 0; column < shape.cols; column += kStateColumns) {
    const uint64_t n = std::min<uint64_t>(kStateColumns, shape.cols - column);
    for (uint32_t row = 0; row < shape.rows; ++row, panel += kStateColumns) {
      std::memcpy(rows + row * uint64_t{shape.cols} + column, panel, n * sizeof(float));
    }
  }
}

void CpuState::write_row(uint32_t index, uint32_t row, const float* values) {
  float* at = slot(index) + row * kStateColumns;
  for (uint64_t column = 0; column < shape.cols; column += kStateColumns) {
    const uint64_t n = std::min<uint64_t>(kStateColumns, shape.cols - column);
    std::memcpy(at, values + column, n * sizeof(float));
    at += uint64_t{shape.rows} * kStateColumns;
  }
}

}  // namespace forge::cpu
