// Quantisation of models as they load, and of test and synthetic models. Scales minimise the
// squared error, with equal weight for all elements.
#ifndef FORGE_COMMON_QUANT_QUANTIZE_H
#define FORGE_COMMON_QUANT_QUANTIZE_H

#include <cstdint>

#include "weight_type.h"

namespace forge {

/// Writes `in[n]` as `row_bytes(type, n)` bytes to `out`, each weight rounded to the nearest level
/// its block's stored scale offers. Types: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K,
/// Q6_K.
///
/// Returns false when `type` is not one of these, `n` is not a whole number of blocks, or a weight
/// is not finite or too large for the type; the content of `out` is then undefined.
bool quantize(WeightType type, const float* in, uint8_t* out, uint64_t n);

/// True if `quantize` writes a type.
bool can_quantize(WeightType type);

}  // namespace forge

#endif
