#pragma once

// Columns of a state matrix that a few lanes of a warp hold in registers while the tokens of a run
// pass (state_arguments.h).

#include "state_arguments.h"
#include "warp.cuh"

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
DEVICE float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

// Sum over the `lanes` of a column. The order of addition is the same for every token.
template <u32 lanes>
DEVICE float column_sum(float x) {
#pragma unroll
  for (u32 bits = lanes / 2; bits > 0; bits /= 2) x += __shfl_xor_sync(kAllLanes, x, bits);
  return x;
}
