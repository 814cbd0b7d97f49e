#pragma once

#include <memory>

#include "device.h"

namespace forge::metal {

// An address in device memory, as launches bind it; null without a buffer.
struct Place {
  void* buffer = nullptr;  // an MTLBuffer
  uint64_t offset = 0;

  explicit operator bool() const { return buffer != nullptr; }
  Place operator+(uint64_t bytes) const { return buffer ? Place{buffer, offset + bytes} : Place{}; }
};

// Access to a buffer: by CPU and GPU, or by the GPU alone, which may then choose its layout.
enum class Storage { shared, gpu_only };

class Buffer {
 public:
  Buffer() = default;
  // Throws FORGE_OUT_OF_MEMORY, listing what forge holds, without asking Metal for more than it
  // recommends. Allocates nothing for 0 bytes.
  Buffer(std::shared_ptr<const Device> device, uint64_t bytes, Purpose purpose, Storage storage);
  // Maps host pages for the GPU to read, without a copy. `pages` and `bytes` are multiples of the
  // system's page size, and `owner` keeps them mapped.
  Buffer(std::shared_ptr<const Device> device, const uint8_t* pages, uint64_t bytes,
         std::shared_ptr<const void> owner);
  ~Buffer();
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;

  Place at(uint64_t offset = 0) const { return Place{object_.get()} + offset; }
  // Contents of a shared buffer; null for others.
  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  explicit operator bool() const { return static_cast<bool>(object_); }

 private:
  std::shared_ptr<const Device> device_;
  std::shared_ptr<const void> owner_;
  Object object_;
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
  Purpose purpose_ = Purpose::activations;
};

// Memory that CPU and GPU share (gpu/device_inputs.h). Written while the GPU is idle, except masks,
// which only launches not yet committed read.
class InputArea {
 public:
  using Device = std::shared_ptr<const metal::Device>;

  explicit InputArea(Device device) : device_(std::move(device)) {}

  void allocate(uint64_t bytes) {
    buffer_ = Buffer();
    buffer_ = Buffer(device_, bytes, Purpose::activations, Storage::shared);
  }
  uint8_t* host() const { return buffer_.data(); }
  Place at() const { return buffer_.at(); }
  uint64_t bytes() const { return buffer_.bytes(); }
  // The GPU sees what the CPU writes.
  void send(uint64_t) const {}
  void send_rows(uint64_t, uint64_t, uint64_t) const {}

 private:
  Device device_;
  Buffer buffer_;
};

}  // namespace forge::metal
