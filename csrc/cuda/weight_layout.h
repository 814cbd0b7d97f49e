#pragma once

#include "../common/quant/weight_type.h"

namespace forge::cuda {

// Layout of weights on the device: rows are aligned to 16 bytes, and blocks with unaligned fields
// are split into one plane per field. Quants are swizzled (kernels/cuda/formats.cuh).

// True if the kernel repack_rows converts rows of this type from the layout of the file.
bool is_repacked(WeightType type);

// Bytes from one row to the next.
uint64_t device_row_bytes(WeightType type, uint64_t cols);

}  // namespace forge::cuda
