#pragma once

// Quantisation of models as they load or into a file, and of test and synthetic models. Scales
// minimise the sum of squared errors, each times the importance of its weight.

#include <cstdint>

#include "weight_type.h"

namespace forge {

// Writes `in[n]` as `row_bytes(type, n)` bytes to `out`, each weight rounded to the nearest level
// its block's stored scale offers. Types: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to
// Q6_K, IQ4_NL, IQ4_XS. `importance[n]` is at least 0 and finite; without it all weights are
// equal. Q4_1, Q5_1 and Q8_0, whose scales span the weights, do not use it.
//
// Returns false when `type` is not one of these, `n` is not a whole number of blocks, or a weight
// is not finite or too large for the type; the content of `out` is then undefined.
bool quantize(WeightType type, const float* in, uint8_t* out, uint64_t n,
              const float* importance = nullptr);

// True if `quantize` writes a type.
bool can_quantize(WeightType type);

}  // namespace forge
