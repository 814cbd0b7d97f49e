#pragma once

#include "kernels.h"

namespace forge::metal {

// Whether the lanes of the GPU's SIMD groups hold the numbers of matrices that `matrix_place`
// (kernels/metal/arguments.h) says they hold, on which the tiled kernels of attention build. Runs a
// kernel that looks.
bool has_known_matrix_places(const std::shared_ptr<const Device>& device, Kernels& kernels);

}  // namespace forge::metal
