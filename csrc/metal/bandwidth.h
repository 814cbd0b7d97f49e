#pragma once

#include "buffer.h"

namespace forge::metal {

// Measures a copy on the GPU: bytes read and written per second. Returns 0 if too little memory is
// free.
uint64_t measure_bandwidth(const std::shared_ptr<const Device>& device);

}  // namespace forge::metal
