#pragma once

#include "memory.h"

namespace forge::cuda {

// Bytes a second that a plain copy on the device reads and writes together; 0 where there is no
// room for one that tells anything.
uint64_t measure_bandwidth(const std::shared_ptr<DeviceState>& state);

}  // namespace forge::cuda
