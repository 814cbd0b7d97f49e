#pragma once

#include <string>

#include "../gpu/device_caches.h"
#include "memory.h"

namespace forge::cuda {

// Caches in device memory (gpu/device_caches.h).
struct CacheTransfers {
  using Device = std::shared_ptr<DeviceState>;
  using Buffer = DeviceBuffer;
  struct Turn : DeviceTurn {
    explicit Turn(const Device& state) : DeviceTurn(state->device) {}
  };

  static Buffer zeroed(const Device& state, uint64_t bytes, const std::string& what) {
    const auto& device = state->device;
    const DeviceScope scope(device);
    Buffer buffer(state, bytes, Purpose::kv_cache);
    device.check(device.api().fill_bytes(buffer.at(), 0, bytes, device.stream()), what);
    return buffer;
  }
  static void copy(const Device& state, DevicePointer to, DevicePointer from, uint64_t bytes,
                   const std::string& what) {
    const auto& device = state->device;
    device.check(device.api().copy_on_device(to, from, bytes, device.stream()), what);
  }
  static void read(const Device& state, uint8_t* to, DevicePointer from, uint64_t bytes,
                   const std::string& what) {
    const auto& device = state->device;
    device.check(device.api().copy_to_host(to, from, bytes, device.stream()), what);
    device.synchronize(what);
  }
  static void write(const Device& state, DevicePointer to, const uint8_t* from, uint64_t bytes,
                    const std::string& what) {
    const auto& device = state->device;
    device.check(device.api().copy_to_device(to, from, bytes, device.stream()), what);
    // The caller may reuse its buffer after this returns.
    device.synchronize(what);
  }
};

using CudaKv = KvCacheIn<CacheTransfers>;
using CudaStateCache = StateCacheIn<CacheTransfers>;

}  // namespace forge::cuda
