#include "codebooks.h"

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
