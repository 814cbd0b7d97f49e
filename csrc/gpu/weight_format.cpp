#include "weight_format.h"

#include <cstring>

#include "../common/quant/iq1.h"
#include "../common/quant/iq2.h"
#include "../common/quant/iq3.h"

namespace forge {

namespace {

template <class Table>
void append(std::vector<uint8_t>& bytes, const Table& table) {
  const size_t end = bytes.size();
  bytes.resize(end + sizeof table);
  std::memcpy(bytes.data() + end, &table, sizeof table);
}

}  // namespace

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

std::vector<uint8_t> codebook_bytes() {
  std::vector<uint8_t> bytes;
  append(bytes, iq1_grid);
  append(bytes, iq2_xxs_grid);
  append(bytes, iq2_xs_grid);
  append(bytes, iq2_s_grid);
  append(bytes, iq3_xxs_grid);
  append(bytes, iq3_s_grid);
  return bytes;
}

bool uses_codebooks(WeightType type) {
  switch (type) {
    case WeightType::IQ1_S:
    case WeightType::IQ1_M:
    case WeightType::IQ2_XXS:
    case WeightType::IQ2_XS:
    case WeightType::IQ2_S:
    case WeightType::IQ3_XXS:
    case WeightType::IQ3_S:
      return true;
    default:
      return false;
  }
}

}  // namespace forge
