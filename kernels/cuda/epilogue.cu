// The epilogue of a product computed by a library: out = residual + alpha * activation(p + bias),
// where p = product * x_scale of its row undoes the scaling of convert_rows.
//
//   product may be out itself; out [.., out_stride] F32: token i is row i of the set
//   grid: (cols / 1024, tokens); block 256, four elements a thread

#include "activation.cuh"
#include "row_set.cuh"

KERNEL epilogue(LibraryProduct a, Epilogue e) {
  wait_for_previous_kernel();
  const u32 token = blockIdx.y;
  if (token >= *a.set.count) return;
  const float scale = a.x_scale ? a.x_scale[token] : 1.0f;
  const bool changes = scale != 1.0f || e.bias || e.residual || e.alpha != 1.0f || e.activation;
  if (a.out == a.product && !changes) return;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= a.cols) return;
    const float product = a.product[u64(token) * a.product_stride + i] * scale;
    store_product(a.out, e, product, row_of_set(a.set, token), i);
  }
}

INSTANCE(epilogue)
