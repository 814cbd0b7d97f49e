// Converts rows of x for products on tensor cores (rounded_rows.cuh), normalized if they have a
// norm: each once, or those of pairs of a token and an expert, in the order of the pairs. Or the
// rows of a gated unit (glu.cu), whose results then need no memory of their own.
//
//   out is zero beyond cols; chunk_cols: 0 for columns in their order, 16 or 32 for that of
//   wgmma_quantized.cuh
//   grid: (rows, pieces per row), or pairs; block 256; dynamic shared: of a gated unit, 4 bytes for
//   each of padded_cols
//
// Rows are padded so that products need no bounds checks along K.

#include "activation.cuh"
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

// x [.., gate | up], of a.cols numbers each.
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    convert_gated_rows(ARGUMENT(ConvertRows) a, u32 unit) {
  wait_for_previous_kernel();
  SHARED(float, maxima, [kWarp]);
  DYNAMIC_SHARED(float, row);
  if (blockIdx.x >= *a.set.count) return;
  const u32 units = a.padded_cols / 8;
  const float* gates = a.x + u64(row_of_set(a.set, blockIdx.x)) * 2 * a.cols;
  float largest = 0;
  for (u32 i = threadIdx.x; i < units; i += kRowThreads) {
    float gate[8], up[8];
    load_eight(gates, i * 8, a.cols, gate);
    load_eight(gates + a.cols, i * 8, a.cols, up);
#pragma unroll
    for (u32 k = 0; k < 8; ++k) {
      const float number = i * 8 + k < a.cols ? gated_unit(unit, gate[k], up[k]) : 0.0f;
      largest = fmaxf(largest, fabsf(number));
      row[i * 8 + k] = number;
    }
  }
  const float divisor = divisor_of_row(T{}, block_max(largest, maxima));
  uint4* to = static_cast<uint4*>(a.out) + u64(blockIdx.x) * units;
  for (u32 i = threadIdx.x; i < units; i += kRowThreads) {
    float v[8];
    if (a.chunk_cols == 0) {
      load_eight(row, i * 8, a.padded_cols, v);
    } else {
      load_pairs(row, i, a.chunk_cols, a.padded_cols, v);
    }
    to[i] = packed(T{}, v, 1.0f / divisor);
  }
  if (threadIdx.x == 0) a.scale[blockIdx.x] = divisor;
}

INSTANCE(convert_rows<f16>)
INSTANCE(convert_rows<bf16>)
INSTANCE(convert_pairs<f16>)
INSTANCE(convert_pairs<bf16>)
INSTANCE(convert_gated_rows<f16>)
INSTANCE(convert_gated_rows<bf16>)
