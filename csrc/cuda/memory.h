#pragma once

#include <memory>

#include "../gpu/memory_ledger.h"
#include "device.h"

namespace forge::cuda {

// A device together with what is allocated on it.
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
  // Throws FORGE_OUT_OF_MEMORY, saying what holds the memory, before the driver is asked for more
  // than is free.
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

// Host memory that the device copies from and to without the driver's help.
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

}  // namespace forge::cuda
