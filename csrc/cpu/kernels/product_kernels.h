#pragma once

// Shared by the kernels of products: see MatmulBlock in kernel_table.h.

#include "../kernel_table.h"
#include "simd.h"

namespace forge::cpu::FORGE_TARGET {

// Stores rows [first, first + n_rows) of the block for one token, at most 64 of them. sums[0] is
// the product of row `first`. Reads whole vectors of sums.
void finish(const MatmulBlock& block, const MatmulToken& token, uint32_t first, uint32_t n_rows,
            const float* sums);

// The products of one kind of panels.
using ProductKernel = void (*)(const MatmulBlock& block, uint8_t* scratch);

// For types multiplied with activations as signed bytes; null for others.
ProductKernel int8_products(WeightType type);
// For panels of F32, F16, BF16 and FP8, and for rows of any other type, which it dequantises.
ProductKernel float_products(WeightType type);

FORGE_INLINE uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

// Calls body.template operator()<i>() for i from 0 to `n` - 1, n being 1, 2, 4 or 8. Written out:
// in a recursion, every level would compile all levels below it.
template <int n, class Body>
FORGE_INLINE void unrolled(Body body) {
  body.template operator()<0>();
  if constexpr (n >= 2) body.template operator()<1>();
  if constexpr (n >= 4) {
    body.template operator()<2>();
    body.template operator()<3>();
  }
  if constexpr (n == 8) {
    body.template operator()<4>();
    body.template operator()<5>();
    body.template operator()<6>();
    body.template operator()<7>();
  }
}

// Calls body.template operator()<size>() with the smallest tile size for `n` <= `most` tokens. Only
// some sizes are instantiated, to limit code size.
template <int most, class Body>
FORGE_INLINE void with_tile_tokens(uint32_t n, Body body) {
  if constexpr (most >= 16) {
    if (most == 16 || n <= 16) return body.template operator()<16>();
    return body.template operator()<most>();
  } else {
    if (n <= 1) return body.template operator()<1>();
    if (most == 2 || n == 2) return body.template operator()<2>();
    if constexpr (most == 3) return body.template operator()<3>();
    if constexpr (most >= 4) {
      if (most == 4 || n <= 4) return body.template operator()<4>();
    }
    if constexpr (most >= 6) {
      if (most == 6 || n <= 6) return body.template operator()<6>();
    }
    if constexpr (most == 8) return body.template operator()<8>();
  }
}

}  // namespace forge::cpu::FORGE_TARGET
