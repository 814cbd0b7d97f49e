#include "product_shape.h"

#include <algorithm>
#include <bit>

#include "../../kernels/metal/arguments.h"
#include "../gpu/rounding.h"

namespace forge::metal {

using namespace metal_args;

MatvecShape matvec_shape(const WeightFormat& format, uint64_t rows, uint64_t cols,
                         uint32_t n_tokens, uint32_t n_products) {
  const uint32_t simd_rows = format.is_generic ? kMatvecBlocksRows : kMatvecRows;
  const auto row_groups = [&](uint32_t split) {
    return divide_up(rows, kMatvecSimdgroups / split * simd_rows);
  };
  const uint64_t most = std::min<uint64_t>(kMatvecSimdgroups, cols / kSplitCols);
  uint32_t split = 1;
  while (2 * split <= most && uint64_t{row_groups(split)} * n_products < kFewThreadgroups) {
    split *= 2;
  }
  const uint32_t tokens = format.is_generic ? (n_tokens == 1 ? 1 : 4)
                                            : std::min(std::bit_ceil(n_tokens), kMostMatvecTokens);
  return {tokens, split, row_groups(split)};
}

}  // namespace forge::metal
