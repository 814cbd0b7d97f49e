#pragma once

#include <string>

#include "../../kernels/metal/arguments.h"
#include "../gpu/device_caches.h"
#include "buffer.h"

namespace forge::metal {

// The memory of a cache on the GPU (gpu/device_caches.h).
class CacheMemory {
 public:
  using Device = std::shared_ptr<const metal::Device>;
  using Pages = metal_args::KvPages;

  // `name` is used in errors.
  CacheMemory(Device device, uint64_t bytes, std::string name)
      : device_(std::move(device)), bytes_(bytes), name_(std::move(name)) {}

  bool is_allocated() const { return static_cast<bool>(buffer_); }
  void allocate() const;
  void copy(uint64_t to, uint64_t from, uint64_t bytes) const;
  void read(uint8_t* to, uint64_t from, uint64_t bytes) const;
  void write(uint64_t to, const uint8_t* from, uint64_t bytes) const;
  Place at() const { return buffer_.at(); }

 private:
  Device device_;
  uint64_t bytes_;
  std::string name_;
  mutable Buffer buffer_;
};

using MetalKv = KvCacheIn<CacheMemory>;
using MetalStateCache = StateCacheIn<CacheMemory>;

}  // namespace forge::metal
