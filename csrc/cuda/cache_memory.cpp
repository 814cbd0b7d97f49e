#include "cache_memory.h"

namespace forge::cuda {

void CacheMemory::allocate() const {
  if (buffer_) return;
  const auto& device = state_->device;
  const DeviceScope scope(device);
  DeviceBuffer buffer(state_, bytes_, Purpose::kv_cache);
  device.check(device.api().fill_bytes(buffer.at(), 0, bytes_, device.stream()), "clearing ",
               name_);
  buffer_ = std::move(buffer);
}

void CacheMemory::copy(uint64_t to, uint64_t from, uint64_t bytes) const {
  const auto& device = state_->device;
  const DeviceTurn turn(device);
  allocate();
  device.check(
      device.api().copy_on_device(buffer_.at(to), buffer_.at(from), bytes, device.stream()),
      "copying ", name_);
}

void CacheMemory::read(uint8_t* to, uint64_t from, uint64_t bytes) const {
  const auto& device = state_->device;
  const DeviceTurn turn(device);
  allocate();
  const std::string what = "reading " + name_;
  device.check(device.api().copy_to_host(to, buffer_.at(from), bytes, device.stream()), what);
  device.synchronize(what);
}

void CacheMemory::write(uint64_t to, const uint8_t* from, uint64_t bytes) const {
  const auto& device = state_->device;
  const DeviceTurn turn(device);
  allocate();
  const std::string what = "writing " + name_;
  device.check(device.api().copy_to_device(buffer_.at(to), from, bytes, device.stream()), what);
  // The caller may reuse its buffer after this returns.
  device.synchronize(what);
}

}  // namespace forge::cuda
