// Quantisation: of models as they load, and for tests and synthetic models. Scales are those of the
// least squared error, all weights counting alike.
#ifndef FORGE_COMMON_QUANT_QUANTIZE_H
#define FORGE_COMMON_QUANT_QUANTIZE_H

#include <cstdint>

#include "weight_type.h"

namespace forge {

/// Writes `in[n]` as `row_bytes(type, n)` bytes to `out`, each weight rounded to the nearest level
/// its block's stored scale offers. Types: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K,
/// Q6_K.
///
/// Returns false when `type` is another one, `n` is not a whole number of blocks, or a weight is
/// not finite or too large for the type; `out` then holds nothing of use.
bool quantize(WeightType type, const float* in, uint8_t* out, uint64_t n);

/// Whether `quantize` writes a type.
bool can_quantize(WeightType type);

}  // namespace forge

#endif
