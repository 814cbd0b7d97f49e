#pragma once

#include <set>

#include "device_kv.h"

namespace forge {

// The device memory that a step will take beyond what is taken already.
struct MemoryNeeds {
  uint64_t weights = 0;
  std::set<const DeviceKv*> caches;  // those without memory
  uint64_t activations = 0;

  uint64_t kv_bytes() const;
  uint64_t total() const { return weights + kv_bytes() + activations; }
};

// Throws FORGE_OUT_OF_MEMORY, with the sizes and what would fit, when the device cannot hold it.
void require_memory(const DeviceRoom& room, const MemoryNeeds& needs);

}  // namespace forge
