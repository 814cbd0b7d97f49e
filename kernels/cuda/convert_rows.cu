// Converts rows of x for products on tensor cores (rounded_rows.cuh), normalized if they have a
// norm: each once, or those of pairs of a token and an expert, in the order of the pairs.
//
//   out is zero beyond cols; chunk_cols: 0 for columns in their order, 16 or 32 for that of
//   wgmma_quantized.cuh
//   grid: (rows, pieces per row), or pairs; block 256
//
// Rows are padded so that products need no bounds checks along K.

#include "moe.cuh"
#include "rounded_rows.cuh"

template <class T>
__global__ void __launch_bounds__(kRowThreads) convert_rows(ARGUMENT(ConvertRows) a) {
  wait_for_previous_kernel();
  if (blockIdx.x >= *a.set.count) return;
  const u64 from = u64(row_of_set(a.set, blockIdx.x)) * gridDim.y + blockIdx.y;
  convert_row<T, kRowThreads>(a, a.x + from * a.cols, u64(blockIdx.x) * gridDim.y + blockIdx.y);
}

template <class T>
__global__ void __launch_bounds__(kRowThreads) convert_pairs(ConvertRows a, ExpertPairs e) {
  wait_for_previous_kernel();
  if (blockIdx.x >= *a.set.count * e.top_k) return;
  const u64 from = x_row_of_pair(a.set, e, e.pairs[blockIdx.x]);
  convert_row<T, kRowThreads>(a, a.x + from * a.cols, blockIdx.x);
}

INSTANCE(convert_rows<f16>)
INSTANCE(convert_rows<bf16>)
INSTANCE(convert_pairs<f16>)
INSTANCE(convert_pairs<bf16>)
