// Products of a weight in F32: out = residual + alpha * activation(x weight^T + bias) for few tokens.
//
//   x [tokens, cols] F32; weight: `rows` rows, row_stride bytes apart
//   out [tokens, out_stride] F32, of which the first `rows` columns are written, for the tokens of
//   a set
//   grid: (rows / (8 / split * 2), max_rows / tokens); block 256: 8 warps
//   split: 1, 2, 4 or 8 warps share the columns of a row
//   moves: the weight, once per `tokens` tokens
//
// The method is that of matvec.cuh.

#include "matvec.cuh"
#include "row_set.cuh"

template <u32 tokens>
__global__ void __launch_bounds__(256, matvec_blocks_per_sm(tokens))
    matvec(float* out, const float* x, const u8* weight, u64 row_stride, u32 rows, u32 cols,
           u32 out_stride, RowSet set, Epilogue e, u32 split) {
  wait_for_previous_kernel();
  const u32 first = blockIdx.y * tokens, count = *set.count;
  if (first >= count) return;
  // Tokens beyond the last repeat the last and are not stored.
  TokenRows<tokens> token_rows;
#pragma unroll
  for (u32 t = 0; t < tokens; ++t) {
    token_rows.row[t] = x + u64(row_of_set(set, min(first + t, count - 1))) * cols;
  }
  multiply_rows<tokens>({weight, row_stride, rows, cols}, token_rows, split,
                        [&](u32 row, u32 t, float product) {
                          if (first + t >= count) return;
                          store_product(out, e, product, row_of_set(set, first + t), out_stride,
                                        row);
                        });
}

INSTANCE(matvec<1>)
INSTANCE(matvec<2>)
INSTANCE(matvec<4>)
INSTANCE(matvec<8>)
