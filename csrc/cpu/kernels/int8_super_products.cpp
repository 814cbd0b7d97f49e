// Products of the types with blocks of 256 columns: see int8_products.cpp.

#include "int8_products.h"

namespace forge::cpu::FORGE_TARGET {

ProductKernel super_block_products(WeightType type) {
  switch (type) {
    case WeightType::Q2_K: return int8_matmul<WeightType::Q2_K>;
    case WeightType::Q3_K: return int8_matmul<WeightType::Q3_K>;
    case WeightType::Q4_K: return int8_matmul<WeightType::Q4_K>;
    case WeightType::Q5_K: return int8_matmul<WeightType::Q5_K>;
    case WeightType::Q6_K: return int8_matmul<WeightType::Q6_K>;
    case WeightType::IQ4_XS: return int8_matmul<WeightType::IQ4_XS>;
    default: return nullptr;
  }
}

}  // namespace forge::cpu::FORGE_TARGET
