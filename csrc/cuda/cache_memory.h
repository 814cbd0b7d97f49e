#pragma once

#include <string>

#include "../gpu/device_caches.h"
#include "kernel_types.h"
#include "memory.h"

namespace forge::cuda {

// The memory of a cache on a CUDA device (gpu/device_caches.h).
class CacheMemory {
 public:
  using Device = std::shared_ptr<DeviceState>;
  using Pages = KvPages;

  // `name` is used in errors.
  CacheMemory(Device state, uint64_t bytes, std::string name)
      : state_(std::move(state)), bytes_(bytes), name_(std::move(name)) {}

  bool is_allocated() const { return static_cast<bool>(buffer_); }
  void allocate() const;
  void copy(uint64_t to, uint64_t from, uint64_t bytes) const;
  void read(uint8_t* to, uint64_t from, uint64_t bytes) const;
  void write(uint64_t to, const uint8_t* from, uint64_t bytes) const;
  DevicePointer at() const { return buffer_.at(); }

 private:
  Device state_;
  uint64_t bytes_;
  std::string name_;
  mutable DeviceBuffer buffer_;
};

using CudaKv = KvCacheIn<CacheMemory>;
using CudaStateCache = StateCacheIn<CacheMemory>;

}  // namespace forge::cuda
