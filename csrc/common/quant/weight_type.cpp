#include "weight_type.h"

#include <limits>

#include "block.h"
#include "floats.h"
#include "fp4.h"
#include "fp8.h"
#include "iq1.h"
#include "iq2.h"
#include "iq3.h"
#include "iq4.h"
#include "k_quants.h"
#include "legacy.h"
#include "ternary.h"

namespace forge {
namespace {

template <typename Block>
constexpr WeightTypeInfo info(WeightType type, const char* name) {
  return {type, name, Block::elements, sizeof(Block), dequantize_blocks<Block>};
}

constexpr WeightTypeInfo table[] = {
    info<BlockF32>(WeightType::F32, "F32"),
    info<BlockF16>(WeightType::F16, "F16"),
    info<BlockQ4_0>(WeightType::Q4_0, "Q4_0"),
    info<BlockQ4_1>(WeightType::Q4_1, "Q4_1"),
    info<BlockQ5_0>(WeightType::Q5_0, "Q5_0"),
    info<BlockQ5_1>(WeightType::Q5_1, "Q5_1"),
    info<BlockQ8_0>(WeightType::Q8_0, "Q8_0"),
    info<BlockQ2_K>(WeightType::Q2_K, "Q2_K"),
    info<BlockQ3_K>(WeightType::Q3_K, "Q3_K"),
    info<BlockQ4_K>(WeightType::Q4_K, "Q4_K"),
    info<BlockQ5_K>(WeightType::Q5_K, "Q5_K"),
    info<BlockQ6_K>(WeightType::Q6_K, "Q6_K"),
    info<BlockIQ2_XXS>(WeightType::IQ2_XXS, "IQ2_XXS"),
    info<BlockIQ2_XS>(WeightType::IQ2_XS, "IQ2_XS"),
    info<BlockIQ3_XXS>(WeightType::IQ3_XXS, "IQ3_XXS"),
    info<BlockIQ1_S>(WeightType::IQ1_S, "IQ1_S"),
    info<BlockIQ4_NL>(WeightType::IQ4_NL, "IQ4_NL"),
    info<BlockIQ3_S>(WeightType::IQ3_S, "IQ3_S"),
    info<BlockIQ2_S>(WeightType::IQ2_S, "IQ2_S"),
    info<BlockIQ4_XS>(WeightType::IQ4_XS, "IQ4_XS"),
    info<BlockIQ1_M>(WeightType::IQ1_M, "IQ1_M"),
    info<BlockBF16>(WeightType::BF16, "BF16"),
    info<BlockTQ1_0>(WeightType::TQ1_0, "TQ1_0"),
    info<BlockTQ2_0>(WeightType::TQ2_0, "TQ2_0"),
    info<BlockMXFP4>(WeightType::MXFP4, "MXFP4"),
    info<BlockFP8>(WeightType::FP8, "FP8"),
    info<BlockFP4>(WeightType::FP4, "FP4"),
};

}  // namespace

const WeightTypeInfo* find_weight_type(uint32_t id) {
  for (const WeightTypeInfo& entry : table) {
    if (static_cast<uint32_t>(entry.type) == id) return &entry;
  }
  return nullptr;
}

std::optional<uint64_t> row_bytes(WeightType type, uint64_t cols) {
  const WeightTypeInfo* entry = find_weight_type(static_cast<uint32_t>(type));
  if (entry == nullptr || cols % entry->block_elements != 0) return std::nullopt;
  const uint64_t n_blocks = cols / entry->block_elements;
  if (n_blocks > std::numeric_limits<uint64_t>::max() / entry->block_bytes) return std::nullopt;
  return n_blocks * entry->block_bytes;
}

}  // namespace forge
