#include "kernels.h"
#include "product_kernels.h"

namespace forge::cpu::FORGE_TARGET {

void matmul(const MatmulBlock& block, uint8_t* scratch) {
  ProductKernel multiply = int8_products(block.type);
  if (!multiply) multiply = float_products(block.type);
  multiply(block, scratch);
}

}  // namespace forge::cpu::FORGE_TARGET
