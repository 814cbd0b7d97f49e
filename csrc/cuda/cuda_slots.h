#pragma once

#include "../common/program.h"
#include "../gpu/device_slots.h"
#include "memory.h"

namespace forge::cuda {

class CudaSlots : public DeviceSlots {
 public:
  CudaSlots(const StateShape& cache_shape, std::shared_ptr<DeviceState> state);

  void copy_slot(uint32_t from, uint32_t to) override;
  void read_slot(uint32_t slot, uint8_t* data) const override;
  void write_slot(uint32_t slot, const uint8_t* data) override;

  bool is_allocated() const override { return static_cast<bool>(memory_); }
  void allocate() const override;
  // Where slot 0 lies.
  DevicePointer memory() const { return memory_.at(); }

 private:
  DevicePointer place(uint32_t slot) const { return memory_.at(slot * slot_bytes); }

  std::shared_ptr<DeviceState> state_;
  mutable DeviceBuffer memory_;
};

inline const CudaSlots& cuda_slots(const StateRef& state) {
  return static_cast<const CudaSlots&>(*state);
}

}  // namespace forge::cuda
