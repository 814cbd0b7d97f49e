#include "metal_slots.h"

#include "transfers.h"

namespace forge::metal {

MetalSlots::MetalSlots(const StateShape& cache_shape, std::shared_ptr<const Device> device)
    : DeviceSlots(cache_shape, device->room()), device_(std::move(device)) {}

void MetalSlots::allocate() const {
  if (memory_) return;
  Buffer memory(device_, bytes(), Purpose::kv_cache, Storage::gpu_only);
  fill_with_zeros(*device_, memory, "clearing recurrent state");
  memory_ = std::move(memory);
}

void MetalSlots::copy_slot(uint32_t from, uint32_t to) {
  const std::lock_guard lock(device_->mutex());
  allocate();
  copy_on_gpu(*device_, place(to), place(from), slot_bytes, "copying a state slot");
}

void MetalSlots::read_slot(uint32_t slot, uint8_t* data) const {
  const std::lock_guard lock(device_->mutex());
  allocate();
  read_from_gpu(device_, data, place(slot), slot_bytes, "reading a state slot");
}

void MetalSlots::write_slot(uint32_t slot, const uint8_t* data) {
  const std::lock_guard lock(device_->mutex());
  allocate();
  write_to_gpu(device_, place(slot), data, slot_bytes, "writing a state slot");
}

}  // namespace forge::metal
