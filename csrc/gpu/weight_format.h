#pragma once

#include <string>

#include "../common/quant/weight_type.h"

namespace forge {

// How kernels read weights of a type.
struct WeightFormat {
  std::string name;  // the template argument of kernels, as in "FormatQ8_0"
  // Read block by block, as any type of GGUF can be: slower, by kernels for 1 and 4 tokens only.
  bool is_generic;
};

WeightFormat weight_format(WeightType type);

// The instance of a kernel that computes so many tokens together, as in "matvec<FormatQ8_0, 8>".
std::string tokens_instance(const char* kernel, const WeightFormat& format, uint32_t tokens);

}  // namespace forge
