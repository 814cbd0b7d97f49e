#pragma once

// Products of chunks of weights with rows of x in shared memory, on tensor cores, as decoded tokens
// take them (decode_gemm.cuh, weight_ring.cuh).
//
// Chunks become the left operand without rearrangement, in arithmetic on two F16 at once
// (formats.cuh). A product may take the columns in any order: the four weights that a lane holds of
// a unit's half are its share of 16 columns, if x is read in the same order, eight numbers at a
// time for two products.

#include "formats.cuh"
#include "warp.cuh"

// The place of a unit of eight columns among the units of a token, so that the lanes that an access
// serves at once read different banks: they have two tokens and four chunks of a span.
template <class F>
DEVICE u32 unit_place(u32 token, u32 unit) {
  constexpr u32 kUnits = F::kCols / 8;
  const u32 of_chunk = kUnits == 4 ? (unit >> 3 & 1) * 2 : 0;
  return unit ^ of_chunk ^ (token & 1) * (kUnits == 1 ? 4 : 1);
}

// sums[16 rows, 8 tokens] of each tile += the products of four chunks of each row. x: the span of
// this lane's first token; token_units: from one token to the next.
template <class F, class T, u32 token_units, u32 row_tiles, u32 token_tiles>
DEVICE void multiply_step(float (&sums)[row_tiles][token_tiles][4],
                          const typename F::Chunk (&c)[row_tiles][2], const uint4* x, u32 step) {
  constexpr u32 kUnits = F::kCols / 8;
  const u32 g = token_units == 0 ? 0 : lane_id() / 4, t = lane_id() % 4;
#pragma unroll
  for (u32 p = 0; p < kUnits; ++p) {
    uint4 w[row_tiles][2];
#pragma unroll
    for (u32 m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (u32 i = 0; i < 2; ++i) w[m][i] = F::template words<T>(c[m][i], p);
    }
    // Tokens g and g + 8 n have the same places.
    const uint4* unit = x + unit_place<F>(g, (4 * step + t) * kUnits + p);
#pragma unroll
    for (u32 n = 0; n < token_tiles; ++n) {
      const uint4 v = unit[8 * n * token_units];
#pragma unroll
      for (u32 m = 0; m < row_tiles; ++m) {
        const u32 first[4] = {w[m][0].x, w[m][1].x, w[m][0].y, w[m][1].y};
        const u32 second[4] = {w[m][0].z, w[m][1].z, w[m][0].w, w[m][1].w};
        multiply_add(T{}, sums[m][n], first, v.x, v.y);
        multiply_add(T{}, sums[m][n], second, v.z, v.w);
      }
    }
  }
}
