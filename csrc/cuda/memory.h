#pragma once

#include <memory>

#include "../gpu/device_memory.h"
#include "device.h"

namespace forge::cuda {

// A device and the bytes allocated on it.
struct DeviceState {
  explicit DeviceState(int index) : device(index) {}
  DeviceRoom room() const;
  Device device;
  MemoryLedger ledger;
};

// Device memory; its address is a multiple of 256.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // Throws FORGE_OUT_OF_MEMORY, listing what forge holds, without asking the driver for more than
  // is free.
  DeviceBuffer(std::shared_ptr<DeviceState> state, uint64_t bytes, Purpose purpose);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  DevicePointer at(uint64_t offset = 0) const { return pointer_ + offset; }
  uint64_t bytes() const { return bytes_; }
  explicit operator bool() const { return pointer_ != 0; }

 private:
  std::shared_ptr<DeviceState> state_;
  DevicePointer pointer_ = 0;
  uint64_t bytes_ = 0;
  Purpose purpose_ = Purpose::activations;
};

// Page-locked host memory, which the device copies directly.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(std::shared_ptr<DeviceState> state, uint64_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<DeviceState> state_;
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Pinned host memory and its copy on the device (gpu/device_inputs.h).
class InputArea {
 public:
  using Device = std::shared_ptr<DeviceState>;

  explicit InputArea(Device state) : state_(std::move(state)) {}

  void allocate(uint64_t bytes);
  uint8_t* host() const { return host_.data(); }
  DevicePointer at() const { return device_.at(); }
  uint64_t bytes() const { return device_.bytes(); }
  // Enqueues a copy of the first bytes to the device.
  void send(uint64_t bytes) const;
  // Enqueues a copy of the first `width` bytes of `n_rows` rows, which are `pitch` bytes apart.
  void send_rows(uint64_t pitch, uint64_t width, uint64_t n_rows) const;

 private:
  Device state_;
  PinnedBuffer host_;
  DeviceBuffer device_;
};

}  // namespace forge::cuda
