#pragma once

#include <cstdint>
#include <vector>

#include "../common/quant/weight_type.h"

namespace forge {

// The tables of the IQ weight types, one after another in the order that the kernels expect.
std::vector<uint8_t> codebook_bytes();

// Whether kernels that read weights of a type read the tables.
bool uses_codebooks(WeightType type);

}  // namespace forge
