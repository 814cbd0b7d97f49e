// Products of the types with blocks of 32 or 64 columns, and the choice among all quantised types.
// Types with blocks of 256 columns are in a file of their own, so that both compile at the same
// time.

#include "int8_products.h"

namespace forge::cpu::FORGE_TARGET {

ProductKernel super_block_products(WeightType type);

ProductKernel int8_products(WeightType type) {
  switch (type) {
    case WeightType::Q4_0: return int8_matmul<WeightType::Q4_0>;
    case WeightType::Q4_1: return int8_matmul<WeightType::Q4_1>;
    case WeightType::Q5_0: return int8_matmul<WeightType::Q5_0>;
    case WeightType::Q5_1: return int8_matmul<WeightType::Q5_1>;
    case WeightType::Q8_0: return int8_matmul<WeightType::Q8_0>;
    case WeightType::IQ4_NL: return int8_matmul<WeightType::IQ4_NL>;
    case WeightType::MXFP4: return int8_matmul<WeightType::MXFP4>;
    case WeightType::FP4: return int8_matmul<WeightType::FP4>;
    default: return super_block_products(type);
  }
}

}  // namespace forge::cpu::FORGE_TARGET
