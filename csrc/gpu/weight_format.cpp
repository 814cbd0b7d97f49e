#include "weight_format.h"

namespace forge {

WeightFormat weight_format(WeightType type) {
  switch (type) {
    case WeightType::F32:
      return {"FormatF32", false};
    case WeightType::F16:
      return {"FormatF16", false};
    case WeightType::BF16:
      return {"FormatBF16", false};
    case WeightType::Q8_0:
      return {"FormatQ8_0", false};
    case WeightType::FP8:
      return {"FormatFP8", false};
    case WeightType::Q4_0:
      return {"FormatQ4_0", false};
    case WeightType::Q4_K:
      return {"FormatQ4_K", false};
    case WeightType::Q6_K:
      return {"FormatQ6_K", false};
    default:
      return {"Blocks<" + std::to_string(static_cast<uint32_t>(type)) + ">", true};
  }
}

std::string tokens_instance(const char* kernel, const WeightFormat& format, uint32_t tokens) {
  return std::string(kernel) + "<" + format.name + ", " + std::to_string(tokens) + ">";
}

}  // namespace forge
