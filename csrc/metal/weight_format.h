#pragma once

#include <string>

#include "../common/quant/weight_type.h"

namespace forge::metal {

// How kernels read weights of a type, which lie on the device as in their file.
struct WeightFormat {
  std::string name;        // the template argument of kernels, as in "FormatQ8_0"
  uint32_t alignment = 1;  // of a weight's first byte in memory
  bool is_generic = false;  // read block by block, by fewer kernels
  bool needs_codebooks = false;
};

WeightFormat weight_format(WeightType type);

}  // namespace forge::metal
