// out = residual + sum over a token's experts of weight * x[expert].
//
//   x [tokens, top_k * cols], route [tokens, 2 top_k], out, residual [tokens, cols] F32; residual
//   may be null
//   grid: (cols / 1024, tokens); block 256, four elements a thread

#include "prelude.cuh"

KERNEL moe_combine(float* out, const float* x, const float* route, const float* residual,
                   const u32* n_tokens, u32 cols, u32 top_k) {
  wait_for_previous_kernel();
  const u32 token = blockIdx.y;
  if (token >= *n_tokens) return;
  const float* weights = route + (u64(token) * 2 + 1) * top_k;
  for (u32 n = 0; n < 4; ++n) {
    const u32 i = blockIdx.x * 1024 + n * blockDim.x + threadIdx.x;
    if (i >= cols) return;
    const u64 at = u64(token) * cols + i;
    float sum = residual ? residual[at] : 0.0f;
    for (u32 k = 0; k < top_k; ++k) sum += weights[k] * x[(u64(token) * top_k + k) * cols + i];
    out[at] = sum;
  }
}

INSTANCE(moe_combine)
