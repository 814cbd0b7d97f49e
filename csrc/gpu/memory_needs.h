#pragma once

#include <set>

#include "device_kv.h"
#include "device_slots.h"

namespace forge {

// The device memory that a step will take beyond what is taken already.
struct MemoryNeeds {
  uint64_t weights = 0;
  std::set<const DeviceKv*> caches;     // those without memory
  std::set<const DeviceSlots*> states;  // likewise
  uint64_t activations = 0;

  uint64_t kv_bytes() const;
  uint64_t state_bytes() const;
  uint64_t total() const { return weights + kv_bytes() + state_bytes() + activations; }
};

// Throws FORGE_OUT_OF_MEMORY, with the sizes and what would fit, when the device cannot hold it.
void require_memory(const DeviceRoom& room, const MemoryNeeds& needs);

}  // namespace forge
