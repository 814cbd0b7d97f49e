#include "device_slots.h"

#include "../common/error.h"

namespace forge {

DeviceSlots::DeviceSlots(const StateShape& cache_shape, const DeviceRoom& room) {
  shape = cache_shape;
  slot_bytes = stride() * sizeof(float);
  if (bytes() > room.total_bytes) {
    fail(FORGE_OUT_OF_MEMORY, "recurrent state of ", shape.n_slots, " slots of ", slot_bytes,
         " bytes passes the ", size_text(room.total_bytes), " of ", room.device);
  }
}

}  // namespace forge
