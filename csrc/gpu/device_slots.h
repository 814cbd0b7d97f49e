#pragma once

#include "../common/backend.h"
#include "memory_ledger.h"

namespace forge {

// Recurrent state in device memory, which is taken when the first step that uses it is compiled: by
// then all that the model needs is known. How a slot is laid out is for its operation to say.
class DeviceSlots : public StateCache {
 public:
  virtual bool is_allocated() const = 0;
  // Takes the memory, filled with zeros, unless it is there already.
  virtual void allocate() const = 0;

  uint64_t bytes() const { return slot_bytes * shape.n_slots; }
  // Numbers from one slot to the next.
  uint64_t stride() const { return uint64_t{shape.rows} * shape.cols; }

 protected:
  // Throws FORGE_OUT_OF_MEMORY for more slots than the device would hold if it held nothing else.
  DeviceSlots(const StateShape& cache_shape, const DeviceRoom& room);
};

inline const DeviceSlots& device_slots(const StateCache& state) {
  return static_cast<const DeviceSlots&>(state);
}

}  // namespace forge
