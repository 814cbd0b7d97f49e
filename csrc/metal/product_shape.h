#pragma once

// How a matvec divides its rows and tokens; kernels/metal/arguments.h says why.

#include <cstdint>

#include "../gpu/weight_format.h"

namespace forge::metal {

struct MatvecShape {
  uint32_t tokens;      // computed together
  uint32_t split;       // SIMD groups that share rows
  uint32_t row_groups;  // threadgroups along the rows
};

// `n_tokens` in all; `groups_beside` threadgroups compute other rows at the same time.
MatvecShape matvec_shape(const WeightFormat& format, uint64_t rows, uint64_t cols,
                         uint32_t n_tokens, uint32_t groups_beside = 1);

}  // namespace forge::metal
