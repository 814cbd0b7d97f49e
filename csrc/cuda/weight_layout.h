#pragma once

#include "../common/quant/weight_type.h"

namespace forge::cuda {

// How weights of a type lie on the device: rows begin at multiples of 16 bytes, and blocks whose
// fields would not be aligned are split into planes, one a field. Quants are swizzled
// (kernels/cuda/formats.cuh).

// Whether rows do not lie as in the file, but as the kernel repack_rows makes them.
bool is_repacked(WeightType type);

// Bytes from one row to the next.
uint64_t device_row_bytes(WeightType type, uint64_t cols);

}  // namespace forge::cuda
