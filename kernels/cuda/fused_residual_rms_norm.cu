// Adds to the residual stream and normalizes it for the next block, in one launch:
//   sum = residual + (x_weight ? x / rms(x, eps) * (x_weight + offset) : x)
//   out = sum / rms(sum, next_eps) * (weight + next_offset)
// With x_weight, the first line is the norm after a block of Gemma 2 and 3 and OLMo 2.
//
//   x, residual, sum, out [rows, cols] F32; sum may be the residual itself
//   grid: a block per row; block: whole warps, at most 1024 threads; dynamic shared: cols * 4
//   bytes, which hold the sum until it is normalized
//   moves: 16 bytes an element

#include "warp.cuh"

LARGE_KERNEL fused_residual_rms_norm(float* out, float* sum, const float* x, const float* x_weight,
                                     const float* residual, const float* weight, const u32* n_rows,
                                     u32 cols, float eps, float offset, float next_eps,
                                     float next_offset) {
  wait_for_previous_kernel();
  SHARED(float, partial, [kWarp]);
  SHARED(float, next_partial, [kWarp]);
  DYNAMIC_SHARED(float, kept);
  const u32 row = blockIdx.x;
  if (row >= *n_rows) return;
  const u64 begin = u64(row) * cols;

  float scale = 1;
  if (x_weight) {
    float squares = 0;
    for (u32 i = threadIdx.x; i < cols; i += blockDim.x) squares += x[begin + i] * x[begin + i];
    scale = 1.0f / sqrtf(block_sum(squares, partial) / float(cols) + eps);
  }

  // A thread later reads only the elements of `kept` that it wrote itself.
  float squares = 0;
  for (u32 i = threadIdx.x; i < cols; i += blockDim.x) {
    const float added = x_weight ? x[begin + i] * scale * (x_weight[i] + offset) : x[begin + i];
    const float total = residual[begin + i] + added;
    sum[begin + i] = total;
    kept[i] = total;
    squares += total * total;
  }
  const float next_scale =
      1.0f / sqrtf(block_sum(squares, next_partial) / float(cols) + next_eps);

  for (u32 i = threadIdx.x; i < cols; i += blockDim.x) {
    out[begin + i] = kept[i] * next_scale * (weight[i] + next_offset);
  }
}

INSTANCE(fused_residual_rms_norm)
