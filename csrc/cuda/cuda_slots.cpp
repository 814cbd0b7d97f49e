#include "cuda_slots.h"

namespace forge::cuda {

CudaSlots::CudaSlots(const StateShape& cache_shape, std::shared_ptr<DeviceState> state)
    : DeviceSlots(cache_shape, state->room()), state_(std::move(state)) {}

void CudaSlots::allocate() const {
  if (memory_) return;
  const Device& device = state_->device;
  const DeviceScope scope(device);
  DeviceBuffer memory(state_, bytes(), Purpose::kv_cache);
  device.check(device.api().fill_bytes(memory.at(), 0, bytes(), device.stream()),
               "clearing recurrent state");
  memory_ = std::move(memory);
}

void CudaSlots::copy_slot(uint32_t from, uint32_t to) {
  const Device& device = state_->device;
  const DeviceTurn turn(device);
  allocate();
  device.check(device.api().copy_on_device(place(to), place(from), slot_bytes, device.stream()),
               "copying a state slot");
}

void CudaSlots::read_slot(uint32_t slot, uint8_t* data) const {
  const Device& device = state_->device;
  const DeviceTurn turn(device);
  allocate();
  device.check(device.api().copy_to_host(data, place(slot), slot_bytes, device.stream()),
               "reading a state slot");
  device.synchronize("reading a state slot");
}

void CudaSlots::write_slot(uint32_t slot, const uint8_t* data) {
  const Device& device = state_->device;
  const DeviceTurn turn(device);
  allocate();
  device.check(device.api().copy_to_device(place(slot), data, slot_bytes, device.stream()),
               "writing a state slot");
  // The caller's buffer is its own again when this returns.
  device.synchronize("writing a state slot");
}

}  // namespace forge::cuda
