// What follows a product that a library computed: out = residual + alpha * activation(p + bias),
// where p = product * x_scale of its row undoes the scaling of convert_rows (may be null).
//
//   product [rows, cols] F32; out's rows are out_stride apart
//   grid: (cols / 1024, rows); block 256, four elements a thread

#include "activation.cuh"

KERNEL epilogue(float* out, const float* product, const float* x_scale, const u32* n_rows,
                u32 cols, u32 out_stride, Epilogue e) {
  const u32 row = blockIdx.y;
  if (row >= *n_rows) return;
  const float scale = x_scale ? x_scale[row] : 1.0f;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= cols) return;
    store_product(out, e, product[u64(row) * cols + i] * scale, row, out_stride, i);
  }
}

INSTANCE(epilogue)
