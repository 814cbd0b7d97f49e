// out = residual + sum over a token's experts of weight * x[expert].
//
//   x [tokens, top_k * cols], route [tokens, 2 top_k], out, residual [tokens, cols] F32; residual
//   may be null
//   grid: (cols / 1024, tokens); block 256, four elements a thread

#include "moe_arguments.h"
#include "prelude.cuh"

KERNEL moe_combine(MoeCombine a) {
  wait_for_previous_kernel();
  const u32 token = blockIdx.y;
  if (token >= *a.n_tokens) return;
  const float* weights = a.route + (u64(token) * 2 + 1) * a.top_k;
  for (u32 n = 0; n < 4; ++n) {
    const u32 i = blockIdx.x * 1024 + n * blockDim.x + threadIdx.x;
    if (i >= a.cols) return;
    const u64 at = u64(token) * a.cols + i;
    float sum = a.has_residual ? a.residual[at] : 0.0f;
    for (u32 k = 0; k < a.top_k; ++k) {
      sum += weights[k] * a.x[(u64(token) * a.top_k + k) * a.cols + i];
    }
    a.out[at] = sum;
  }
}

INSTANCE(moe_combine)
