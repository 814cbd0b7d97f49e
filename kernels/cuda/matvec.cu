// Products of a weight in F32: out = residual + alpha * activation(x weight^T + bias) for few
// tokens.
//
//   out [.., out_stride] F32, of which the first `rows` columns are written
//   grid: (rows / (8 / split * 2), max_rows / tokens); block 256: 8 warps
//   split: 1, 2, 4 or 8 warps share the columns of a row
//   moves: the weight, once per `tokens` tokens
//
// The method is that of matvec.cuh.

#include "matvec.cuh"
#include "row_set.cuh"

template <u32 tokens>
__global__ void __launch_bounds__(256, matvec_blocks_per_sm(tokens))
    matvec(ProductOperands a, Epilogue e, u32 split) {
  wait_for_previous_kernel();
  const float* x = static_cast<const float*>(a.x.data);
  const u32 first = blockIdx.y * tokens, count = *a.set.count;
  if (first >= count) return;
  // Tokens beyond the last repeat the last and are not stored.
  TokenRows<tokens> token_rows;
#pragma unroll
  for (u32 t = 0; t < tokens; ++t) {
    token_rows.row[t] = x + u64(row_of_set(a.set, min(first + t, count - 1))) * a.weight.cols;
  }
  multiply_rows<tokens>(a.weight, token_rows, split, [&](u32 row, u32 t, float product) {
    if (first + t >= count) return;
    store_product(a.out, e, product, row_of_set(a.set, first + t), row);
  });
}

INSTANCE(matvec<1>)
INSTANCE(matvec<2>)
INSTANCE(matvec<4>)
INSTANCE(matvec<8>)
