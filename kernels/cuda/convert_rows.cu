// Converts rows of x for products on tensor cores (rounded_rows.cuh), normalized if they have a
// norm: each once, or those of pairs of a token and an expert, in the order of the pairs.
//
//   out is zero beyond cols; chunk_cols: 0 for columns in their order, 16 or 32 for that of
//   wgmma_quantized.cuh
//   grid: (rows, pieces per row), or pairs; block 256, or 1,024 for wide rows without a norm
//
// Rows are padded so that products need no bounds checks along K.

#include "moe.cuh"
#include "rounded_rows.cuh"

template <class T, u32 threads>
DEVICE void convert_row(const ConvertRows& a, const float* from, u64 row) {
  const u32 units = a.padded_cols / 8;
  uint4* to = static_cast<uint4*>(a.out) + row * units;
  RowStart start = start_row(from, a.norm, a.cols);
  const RowScale scale = scale_of_row<threads>(T{}, from, a.norm, start, a.cols);
  for (u32 unit = threadIdx.x; unit < units; unit += threads) {
    to[unit] =
        a.chunk_cols == 0
            ? rounded_unit(T{}, from, a.norm, unit, a.cols, scale.factor)
            : rounded_pairs(T{}, from, a.norm, unit, a.chunk_cols, a.cols, scale.factor);
  }
  if (threadIdx.x == 0) a.scale[row] = scale.product;
}

template <class T, u32 threads = kRowThreads>
__global__ void __launch_bounds__(threads) convert_rows(ARGUMENT(ConvertRows) a) {
  wait_for_previous_kernel();
  if (blockIdx.x >= *a.set.count) return;
  const u64 from = u64(row_of_set(a.set, blockIdx.x)) * gridDim.y + blockIdx.y;
  convert_row<T, threads>(a, a.x + from * a.cols, u64(blockIdx.x) * gridDim.y + blockIdx.y);
}

template <class T>
__global__ void __launch_bounds__(kRowThreads) convert_pairs(ConvertRows a, ExpertPairs e) {
  wait_for_previous_kernel();
  if (blockIdx.x >= *a.set.count * e.top_k) return;
  const u64 from = x_row_of_pair(a.set, e, e.pairs[blockIdx.x]);
  convert_row<T, kRowThreads>(a, a.x + from * a.cols, blockIdx.x);
}

INSTANCE(convert_rows<f16>)
INSTANCE(convert_rows<f16, 1024>)
INSTANCE(convert_rows<bf16>)
INSTANCE(convert_rows<bf16, 1024>)
INSTANCE(convert_pairs<f16>)
INSTANCE(convert_pairs<bf16>)
