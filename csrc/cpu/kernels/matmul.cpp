// The choice of a product's kernel by the type of its weight, and the epilogue of all of them.

#include "product_kernels.h"
#include "vector_math.h"

namespace forge::cpu::FORGE_TARGET {

namespace {

constexpr uint32_t kIdentity = 0;  // FORGE_IDENTITY

}  // namespace

void matmul(const MatmulBlock& block, uint8_t* scratch) {
  ProductKernel multiply = int8_products(block.type);
  if (!multiply) multiply = float_products(block.type);
  multiply(block, scratch);
}

void finish(const MatmulBlock& block, const MatmulToken& token, uint32_t first, uint32_t n_rows,
            const float* sums) {
  const uint64_t at = block.first_row + first;
  float* out = token.out + at;
  const float* residual = token.residual ? token.residual + at : nullptr;
  const float* bias = block.bias ? block.bias + at : nullptr;
  const Vec alpha = set(block.alpha);
  uint32_t r = 0;
  if (!bias && block.activation == kIdentity) {
    for (; r + kLanes <= n_rows; r += kLanes) {
      const Vec value = load(sums + r);
      store(out + r, residual ? fma(value, alpha, load(residual + r)) : value * alpha);
    }
  }
  for (; r < n_rows; r += kLanes) {
    const int n = static_cast<int>(n_rows - r < kLanes ? n_rows - r : kLanes);
    Vec value = load(sums + r);
    if (bias) value = value + load_n(bias + r, n);
    value = activate(block.activation, value);
    value = residual ? fma(value, alpha, load_n(residual + r, n)) : value * alpha;
    store_n(out + r, value, n);
  }
}

}  // namespace forge::cpu::FORGE_TARGET
