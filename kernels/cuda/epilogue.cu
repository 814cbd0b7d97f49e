// The epilogue of a product computed by a library: out = residual + alpha * activation(p + bias),
// where p = product * x_scale of its row undoes the scaling of convert_rows.
//
//   product may be out itself; out [.., out_stride] F32: token i is row i of the set
//   grid: (blocks per row, tokens); block 256, four elements a thread and turn
//
// Rows of models are expected to have no scale (rounded_rows.cuh): where a library has written the
// product to its place and nothing is added, a block then ends at once.

#include "activation.cuh"
#include "row_set.cuh"

KERNEL epilogue(LibraryProduct a, Epilogue e) {
  wait_for_previous_kernel();
  const u32 token = blockIdx.y;
  if (token >= *a.set.count) return;
  const float scale = a.x_scale ? a.x_scale[token] : 1.0f;
  const bool changes = scale != 1.0f || e.bias || e.residual || e.alpha != 1.0f || e.activation;
  if (a.out == a.product && !changes) return;
  const float* product = a.product + u64(token) * a.product_stride;
  const u32 row = row_of_set(a.set, token);
  for (u32 first = blockIdx.x * 1024 + threadIdx.x; first < a.cols; first += gridDim.x * 1024) {
    LoadedProduct loaded[4] = {};
#pragma unroll
    for (u32 k = 0; k < 4; ++k) {
      const u32 i = first + k * 256;
      if (i < a.cols) loaded[k] = load_epilogue(e, product[i] * scale, row, i);
    }
#pragma unroll
    for (u32 k = 0; k < 4; ++k) {
      if (first + k * 256 < a.cols) store_product(a.out, e, loaded[k]);
    }
  }
}

INSTANCE(epilogue)
