#pragma once

#include "memory.h"

namespace forge::cuda {

// Measures a copy on the device: bytes read and written per second. Returns 0 if too little memory
// is free.
uint64_t measure_bandwidth(const std::shared_ptr<DeviceState>& state);

}  // namespace forge::cuda
