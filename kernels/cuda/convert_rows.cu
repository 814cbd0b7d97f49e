// Converts rows of x for products on tensor cores (rounded_rows.cuh), normalized if they have a
// norm.
//
//   out is zero beyond cols
//   grid: (rows, pieces per row); block 256
//
// Pieces are padded so that products need no bounds checks along K.

#include "rounded_rows.cuh"
#include "row_set.cuh"

template <class T>
__global__ void __launch_bounds__(kRowThreads) convert_rows(ConvertRows a) {
  wait_for_previous_kernel();
  if (blockIdx.x >= *a.set.count) return;
  const u64 row = u64(blockIdx.x) * gridDim.y + blockIdx.y;
  const float* from = a.x + (u64(row_of_set(a.set, blockIdx.x)) * gridDim.y + blockIdx.y) * a.cols;
  const u32 units = a.padded_cols / 8;
  uint4* to = static_cast<uint4*>(a.out) + row * units;

  const RowScale scale = scale_of_row(T{}, from, a.norm, a.cols);
  for (u32 unit = threadIdx.x; unit < units; unit += kRowThreads) {
    to[unit] = rounded_unit(T{}, from, a.norm, unit, a.cols, scale.factor);
  }
  if (threadIdx.x == 0) a.scale[row] = scale.product;
}

INSTANCE(convert_rows<f16>)
INSTANCE(convert_rows<bf16>)
