#pragma once

#include "metal_device.h"

namespace forge::metal {

// Measures reads by a kernel, which products of decoded tokens cannot exceed: bytes per second.
// Returns 0 if too little memory is free.
uint64_t measure_bandwidth(MetalDevice& device);

}  // namespace forge::metal
