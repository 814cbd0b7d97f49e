#pragma once

// Measures what bounds the speed of the device.

#include "metal_device.h"

namespace forge::metal {

// Measures reads by a kernel, which products of decoded tokens cannot exceed: bytes per second.
// Returns 0 if too little memory is free.
uint64_t measure_bandwidth(MetalDevice& device);

// Measures products of 8 x 8 matrices in registers, which products of prompts cannot exceed:
// operations per second, two for each product of numbers.
uint64_t measure_matrix_rate(MetalDevice& device);

}  // namespace forge::metal
