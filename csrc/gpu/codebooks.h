#pragma once

#include <cstdint>
#include <vector>

namespace forge {

// The tables of the IQ weight types, one after another in the order that the kernels expect.
std::vector<uint8_t> codebook_bytes();

}  // namespace forge
