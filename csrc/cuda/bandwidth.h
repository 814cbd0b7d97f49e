#pragma once

#include "cuda_device.h"

namespace forge::cuda {

// Measures a kernel that only reads: bytes per second. Returns 0 if too little memory is free.
uint64_t measure_bandwidth(CudaDevice& device);

}  // namespace forge::cuda
