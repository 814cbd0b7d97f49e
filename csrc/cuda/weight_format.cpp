#include "weight_format.h"

namespace forge::cuda {

namespace {

uint64_t pad16(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

WeightFormat weight_format(WeightType type) {
  switch (type) {
    case WeightType::F32:
      return {.name = "FormatF32"};
    case WeightType::F16:
      return {.name = "FormatF16"};
    case WeightType::BF16:
      return {.name = "FormatBF16"};
    case WeightType::Q8_0:
      return {.name = "FormatQ8_0", .repacked = true};
    case WeightType::Q4_0:
      return {.name = "FormatQ4_0", .repacked = true};
    case WeightType::Q6_K:
      return {.name = "FormatQ6_K", .repacked = true};
    case WeightType::Q4_K:
      return {.name = "FormatQ4_K"};
    default:
      break;
  }
  WeightFormat format{.name = "Blocks<" + std::to_string(static_cast<uint32_t>(type)) + ">",
                      .warp_rows = 1,
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

uint64_t device_row_bytes(WeightType type, uint64_t cols) {
  const uint64_t blocks = cols / find_weight_type(static_cast<uint32_t>(type))->block_elements;
  switch (type) {
    case WeightType::Q8_0:
      return blocks * 32 + pad16(blocks * 2);
    case WeightType::Q4_0:
      return blocks * 16 + pad16(blocks * 2);
    case WeightType::Q6_K:
      return blocks * (128 + 64 + 16) + pad16(blocks * 2);
    default:
      return pad16(*row_bytes(type, cols));
  }
}

}  // namespace forge::cuda
