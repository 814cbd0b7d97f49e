#pragma once

#include "kernels.h"

namespace forge::metal {

// Runs a kernel that reports which elements of a matrix each lane of a SIMD group holds. Returns
// true if they match `matrix_place` (kernels/metal/arguments.h), as the tiled attention kernels
// assume.
bool has_known_matrix_places(const std::shared_ptr<const Device>& device, Kernels& kernels);

}  // namespace forge::metal
