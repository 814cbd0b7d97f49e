#include "weight_layout.h"

#include "../gpu/rounding.h"

namespace forge::cuda {

namespace {

uint64_t pad16(uint64_t bytes) { return padded_to(bytes, 16); }

}  // namespace

bool is_repacked(WeightType type) {
  return type == WeightType::Q8_0 || type == WeightType::FP8 || type == WeightType::Q4_0 ||
         type == WeightType::Q4_K || type == WeightType::Q6_K;
}

uint64_t device_row_bytes(WeightType type, uint64_t cols) {
  const uint64_t blocks = cols / find_weight_type(static_cast<uint32_t>(type))->block_elements;
  switch (type) {
    case WeightType::Q8_0:
      return blocks * 32 + pad16(blocks * 2);
    case WeightType::FP8:
      return blocks * 32 + pad16(blocks * 4);
    case WeightType::Q4_0:
      return blocks * 16 + pad16(blocks * 2);
    case WeightType::Q6_K:
      return blocks * (128 + 64 + 16) + pad16(blocks * 2);
    default:
      return pad16(*row_bytes(type, cols));
  }
}

}  // namespace forge::cuda
