#pragma once

#include "../common/program.h"
#include "../gpu/device_slots.h"
#include "buffer.h"

namespace forge::metal {

class MetalSlots : public DeviceSlots {
 public:
  MetalSlots(const StateShape& cache_shape, std::shared_ptr<const Device> device);

  void copy_slot(uint32_t from, uint32_t to) override;
  void read_slot(uint32_t slot, uint8_t* data) const override;
  void write_slot(uint32_t slot, const uint8_t* data) override;

  bool is_allocated() const override { return static_cast<bool>(memory_); }
  void allocate() const override;
  // Where slot 0 lies.
  Place memory() const { return memory_.at(); }

 private:
  Place place(uint32_t slot) const { return memory_.at(slot * slot_bytes); }

  std::shared_ptr<const Device> device_;
  mutable Buffer memory_;
};

inline const MetalSlots& metal_slots(const StateRef& state) {
  return static_cast<const MetalSlots&>(*state);
}

}  // namespace forge::metal
