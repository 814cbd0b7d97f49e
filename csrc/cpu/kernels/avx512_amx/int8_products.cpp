// Products of quantised weights with more than a few tokens, by AMX. Fewer tokens are multiplied by
// the kernels for AVX-512, with the same bits.

// Only on Linux: see bf16_products.cpp.
#if defined(__linux__)

#include "../int8_products.h"

namespace forge::cpu {

namespace avx512 {

void finish(const MatmulBlock& block, const MatmulToken& token, uint32_t first, uint32_t n_rows,
            const float* sums);

}  // namespace avx512

namespace avx512_amx {

void finish(const MatmulBlock& block, const MatmulToken& token, uint32_t first, uint32_t n_rows,
            const float* sums) {
  avx512::finish(block, token, first, n_rows, sums);
}

namespace {

void multiply(const MatmulBlock& block, uint8_t* scratch) {
  const auto multiply_tiles = [&]<WeightType type>() {
    using Format = FormatOf<type>;
    const TileShapes shapes(kBlockCols / Format::Panel::kHalves);
    multiply_many<Format>(block, scratch);
  };
  if (block.n_tokens > kFewTokens && visit_panel_type(block.type, multiply_tiles)) return;
  kernels_avx512().matmul(block, scratch);
}

}  // namespace

}  // namespace avx512_amx

const KernelTable& kernels_avx512_amx_f32() {
  static const KernelTable table = [] {
    KernelTable made = kernels_avx512();
    made.name = "avx512_amx";
    made.matmul = avx512_amx::multiply;
    return made;
  }();
  return table;
}

}  // namespace forge::cpu

#endif
