// The epilogue of a product computed by a library: out = residual + alpha * activation(p + bias),
// where p = product * x_scale of its row undoes the scaling of convert_rows (may be null).
//
//   product [tokens, product_stride] F32, of which `cols` columns are read; may be out itself
//   out [.., out_stride] F32: token i is row i of the set
//   grid: (cols / 1024, tokens); block 256, four elements a thread

#include "activation.cuh"
#include "row_set.cuh"

KERNEL epilogue(float* out, const float* product, const float* x_scale, RowSet set, u32 cols,
                u32 product_stride, u32 out_stride, Epilogue e) {
  wait_for_previous_kernel();
  const u32 token = blockIdx.y;
  if (token >= *set.count) return;
  const float scale = x_scale ? x_scale[token] : 1.0f;
  const bool changes = scale != 1.0f || e.bias || e.residual || e.alpha != 1.0f || e.activation;
  if (out == product && !changes) return;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= cols) return;
    store_product(out, e, product[u64(token) * product_stride + i] * scale, row_of_set(set, token),
                  out_stride, i);
  }
}

INSTANCE(epilogue)
