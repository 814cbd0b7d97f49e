// The accumulator layout of mma.sync and wgmma. In every 16x8 tile, lane l of a warp holds columns
// 2 (l % 4) and 2 (l % 4) + 1 of two rows, l / 4 and l / 4 + 8:
//
//            column 0 1   2 3   4 5   6 7
//   row 0       lane 0  lane 1  lane 2  lane 3     elements [0] and [1]
//   row 1       lane 4  lane 5  ...
//   ...
//   row 8       lane 0  lane 1  ...                elements [2] and [3]
//
// A row is held by four neighbouring lanes, so two shuffles reduce it.
#pragma once

#include "device/device.cuh"

namespace flash_attn {

// 16 * kRowTiles rows by 8 * kColumnTiles columns of one warp.
template <int kRowTiles, int kColumnTiles>
using Accumulators = float[kRowTiles][kColumnTiles][4];

template <int kRowTiles, int kColumnTiles>
FA_DEVICE void clear(Accumulators<kRowTiles, kColumnTiles> &values) {
#pragma unroll
  for (int t = 0; t < kRowTiles; t++) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; n++) {
#pragma unroll
      for (int e = 0; e < 4; e++) values[t][n][e] = 0;
    }
  }
}

}  // namespace flash_attn
