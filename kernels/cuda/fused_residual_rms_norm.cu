// Adds to the residual stream and normalizes it for the next block, in one launch:
//   sum = residual + (x_weight ? x / rms(x, eps) * (x_weight + offset) : x)
//   out = sum / rms(sum, next_eps) * (weight + next_offset)
// With x_weight, the first line is the norm after a block of Gemma 2 and 3 and OLMo 2.
//
//   x, residual, sum, out [rows, cols] F32; sum may be the residual itself
//   grid: a block per row; block: whole warps, at most 1024 threads; dynamic shared: cols * 4
//   bytes, which hold the sum until it is normalized
//   moves: 16 bytes an element

#include "row_arguments.h"
#include "warp.cuh"

LARGE_KERNEL fused_residual_rms_norm(ARGUMENT(FusedResidualRmsNorm) a) {
  wait_for_previous_kernel();
  SHARED(float, partial, [kWarp]);
  SHARED(float, next_partial, [kWarp]);
  DYNAMIC_SHARED(float, kept);
  const u32 row = blockIdx.x;
  if (row >= *a.n_rows) return;
  const u64 begin = u64(row) * a.cols;

  float scale = 1;
  if (a.has_x_weight) {
    float squares = 0;
    for (u32 i = threadIdx.x; i < a.cols; i += blockDim.x) {
      squares += a.x[begin + i] * a.x[begin + i];
    }
    scale = 1.0f / sqrtf(block_sum(squares, partial) / float(a.cols) + a.eps);
  }

  // A thread later reads only the elements of `kept` that it wrote itself.
  float squares = 0;
  for (u32 i = threadIdx.x; i < a.cols; i += blockDim.x) {
    const float own = a.x[begin + i];
    const float added = a.has_x_weight ? own * scale * (a.x_weight[i] + a.offset) : own;
    const float total = a.residual[begin + i] + added;
    a.sum[begin + i] = total;
    kept[i] = total;
    squares += total * total;
  }
  const float next_scale =
      1.0f / sqrtf(block_sum(squares, next_partial) / float(a.cols) + a.next_eps);

  for (u32 i = threadIdx.x; i < a.cols; i += blockDim.x) {
    a.out[begin + i] = kept[i] * next_scale * (a.weight[i] + a.next_offset);
  }
}

INSTANCE(fused_residual_rms_norm)
