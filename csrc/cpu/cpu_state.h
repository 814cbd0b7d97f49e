#pragma once

#include "../common/backend.h"
#include "kernel_table.h"
#include "memory.h"

namespace forge::cpu {

// Slots of panels of 16 columns, [panel][rows][16], the last one filled up with zeros: the delta
// rule passes over one panel after another, each small enough for the first-level cache.
class CpuState : public StateCache {
 public:
  explicit CpuState(const StateShape& cache_shape);

  void copy_slot(uint32_t from, uint32_t to) override;
  void read_slot(uint32_t slot, uint8_t* data) const override;
  void write_slot(uint32_t slot, const uint8_t* data) override;

  // The panels of a slot.
  float* slot(uint32_t index) const;

  // Copies a slot's rows out of its panels, and into them.
  void read_rows(uint32_t slot, float* rows) const;
  void write_row(uint32_t slot, uint32_t row, const float* values);

 private:
  Memory memory_;
};

}  // namespace forge::cpu
