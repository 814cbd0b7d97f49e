#pragma once

// The forms in which kernels read weights of each type.

#include <cstdint>
#include <string>
#include <vector>

#include "../common/quant/weight_type.h"

namespace forge {

struct WeightFormat {
  std::string name;  // template argument of kernels, as in "FormatQ8_0"
  // True if kernels read the type block by block, as they can any GGUF type: slower, with instances
  // for 1 and 4 tokens only.
  bool is_generic;
};

WeightFormat weight_format(WeightType type);

// Name of the instance of a kernel that computes `tokens` tokens together, as in
// "matvec<FormatQ8_0, 8>".
std::string tokens_instance(const char* kernel, const WeightFormat& format, uint32_t tokens);

// The tables of the IQ weight types, concatenated in the order that the kernels expect.
std::vector<uint8_t> codebook_bytes();

// True if kernels look values of this type up in the codebooks.
bool uses_codebooks(WeightType type);

}  // namespace forge
