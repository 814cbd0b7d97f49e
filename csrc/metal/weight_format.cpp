#include "weight_format.h"

namespace forge::metal {

WeightFormat weight_format(WeightType type) {
  switch (type) {
    case WeightType::F32:
      return {.name = "FormatF32", .alignment = 8};
    case WeightType::F16:
      return {.name = "FormatF16", .alignment = 8};
    case WeightType::BF16:
      return {.name = "FormatBF16", .alignment = 8};
    case WeightType::Q4_K:
      return {.name = "FormatQ4_K", .alignment = 8};
    case WeightType::Q8_0:
      return {.name = "FormatQ8_0", .alignment = 2};
    case WeightType::Q4_0:
      return {.name = "FormatQ4_0", .alignment = 2};
    case WeightType::Q6_K:
      return {.name = "FormatQ6_K", .alignment = 2};
    default:
      break;
  }
  WeightFormat format{.name = "Blocks<" + std::to_string(static_cast<uint32_t>(type)) + ">",
                      .is_generic = true};
  switch (type) {
    case WeightType::IQ1_S:
    case WeightType::IQ1_M:
    case WeightType::IQ2_XXS:
    case WeightType::IQ2_XS:
    case WeightType::IQ2_S:
    case WeightType::IQ3_XXS:
    case WeightType::IQ3_S:
      format.needs_codebooks = true;
      break;
    default:
      break;
  }
  return format;
}

}  // namespace forge::metal
