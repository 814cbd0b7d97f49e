#pragma once

// Division of rows and tokens in matvec; kernels/metal/arguments.h gives the reasons.

#include <cstdint>

#include "../gpu/weight_format.h"

namespace forge::metal {

struct MatvecShape {
  uint32_t tokens;      // computed together
  uint32_t split;       // SIMD groups that share rows
  uint32_t row_groups;  // threadgroups along the rows
};

// `n_tokens` is the number of all tokens; the launch has `n_products` times the threadgroups of
// one product.
MatvecShape matvec_shape(const WeightFormat& format, uint64_t rows, uint64_t cols,
                         uint32_t n_tokens, uint32_t n_products = 1);

}  // namespace forge::metal
