#pragma once

#include <mutex>
#include <string>

#include "../../kernels/metal/arguments.h"
#include "../gpu/device_caches.h"
#include "transfers.h"

namespace forge::metal {

// Caches in memory of the GPU alone (gpu/device_caches.h).
struct CacheTransfers {
  using Device = std::shared_ptr<const metal::Device>;
  using Buffer = metal::Buffer;
  struct Turn : std::lock_guard<std::mutex> {
    explicit Turn(const Device& device) : lock_guard(device->mutex()) {}
  };

  static Buffer zeroed(const Device& device, uint64_t bytes, const std::string& what) {
    Buffer buffer(device, bytes, Purpose::kv_cache, Storage::gpu_only);
    fill_with_zeros(*device, buffer, what.c_str());
    return buffer;
  }
  static void copy(const Device& device, Place to, Place from, uint64_t bytes,
                   const std::string& what) {
    copy_on_gpu(*device, to, from, bytes, what.c_str());
  }
  static void read(const Device& device, uint8_t* to, Place from, uint64_t bytes,
                   const std::string& what) {
    read_from_gpu(device, to, from, bytes, what.c_str());
  }
  static void write(const Device& device, Place to, const uint8_t* from, uint64_t bytes,
                    const std::string& what) {
    write_to_gpu(device, to, from, bytes, what.c_str());
  }
};

using MetalKv = KvCacheIn<CacheTransfers>;
using MetalStateCache = StateCacheIn<CacheTransfers>;

}  // namespace forge::metal
