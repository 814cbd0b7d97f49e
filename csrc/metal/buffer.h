#pragma once

#include <memory>

#include "device.h"

namespace forge::metal {

// A place in device memory, as launches bind it; without a buffer it stands for nothing.
struct Place {
  void* buffer = nullptr;  // an MTLBuffer
  uint64_t offset = 0;

  explicit operator bool() const { return buffer != nullptr; }
  Place operator+(uint64_t bytes) const { return buffer ? Place{buffer, offset + bytes} : Place{}; }
};

// Who touches a buffer: the CPU beside the GPU, or the GPU alone, which then may keep it as it
// likes.
enum class Storage { shared, gpu_only };

class Buffer {
 public:
  Buffer() = default;
  // Throws FORGE_OUT_OF_MEMORY, saying what holds the memory, before Metal is asked for more than
  // it recommends. Nothing is taken for 0 bytes.
  Buffer(std::shared_ptr<const Device> device, uint64_t bytes, Purpose purpose, Storage storage);
  // Pages that stay where they are, for the GPU to read: `pages` and `bytes` are multiples of the
  // system's page size, and `owner` keeps them mapped.
  Buffer(std::shared_ptr<const Device> device, const uint8_t* pages, uint64_t bytes,
         std::shared_ptr<const void> owner);
  ~Buffer();
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;

  Place at(uint64_t offset = 0) const { return Place{object_.get()} + offset; }
  // What the CPU sees of a shared buffer.
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

}  // namespace forge::metal
