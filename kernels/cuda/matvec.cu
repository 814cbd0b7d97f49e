// Products of a decode step: out = residual + alpha * activation(x weight^T + bias) for few tokens.
//
//   x [tokens, cols] F32; weight: `rows` rows in the format F, row_stride bytes apart
//   out [tokens, out_stride] F32, of which the first `rows` columns are written, for the tokens of
//   a set
//   grid: (rows / (8 / split * rows per warp), max_rows / tokens); block 256: 8 warps
//   split: 1, 2, 4 or 8 warps share the columns of a row
//   moves: the weight, once per `tokens` tokens
//
// The method is that of matvec.cuh.

#include "matvec.cuh"
#include "row_set.cuh"

template <class F, u32 tokens>
__global__ void __launch_bounds__(256, InFlight<F>::blocks_per_sm(tokens))
    matvec(float* out, const float* x, const u8* weight, u64 row_stride, u32 rows, u32 cols,
           u32 out_stride, RowSet set, Epilogue e, u32 split, const u64* codebooks) {
  wait_for_previous_kernel();
  const u32 first = blockIdx.y * tokens, count = *set.count;
  if (first >= count) return;
  // Tokens beyond the last repeat the last and are not stored.
  TokenRows<tokens> token_rows;
#pragma unroll
  for (u32 t = 0; t < tokens; ++t) {
    token_rows.row[t] = x + u64(row_of_set(set, min(first + t, count - 1))) * cols;
  }
  multiply_rows<F, tokens>({weight, row_stride, rows, cols}, token_rows, split, codebooks,
                           [&](u32 row, u32 t, float product) {
                             if (first + t >= count) return;
                             store_product(out, e, product, row_of_set(set, first + t), out_stride,
                                           row);
                           });
}

INSTANCE(matvec<FormatF32, 1>)
INSTANCE(matvec<FormatF32, 2>)
INSTANCE(matvec<FormatF32, 4>)
INSTANCE(matvec<FormatF32, 8>)
INSTANCE(matvec<FormatF16, 1>)
INSTANCE(matvec<FormatF16, 2>)
INSTANCE(matvec<FormatF16, 4>)
INSTANCE(matvec<FormatF16, 8>)
INSTANCE(matvec<FormatBF16, 1>)
INSTANCE(matvec<FormatBF16, 2>)
INSTANCE(matvec<FormatBF16, 4>)
INSTANCE(matvec<FormatBF16, 8>)
INSTANCE(matvec<FormatQ8_0, 1>)
INSTANCE(matvec<FormatQ8_0, 2>)
INSTANCE(matvec<FormatQ8_0, 4>)
INSTANCE(matvec<FormatQ8_0, 8>)
INSTANCE(matvec<FormatFP8, 1>)
INSTANCE(matvec<FormatFP8, 2>)
INSTANCE(matvec<FormatFP8, 4>)
INSTANCE(matvec<FormatFP8, 8>)
INSTANCE(matvec<FormatQ4_0, 1>)
INSTANCE(matvec<FormatQ4_0, 2>)
INSTANCE(matvec<FormatQ4_0, 4>)
INSTANCE(matvec<FormatQ4_0, 8>)
INSTANCE(matvec<FormatQ4_K, 1>)
INSTANCE(matvec<FormatQ4_K, 2>)
INSTANCE(matvec<FormatQ4_K, 4>)
INSTANCE(matvec<FormatQ4_K, 8>)
INSTANCE(matvec<FormatQ6_K, 1>)
INSTANCE(matvec<FormatQ6_K, 2>)
INSTANCE(matvec<FormatQ6_K, 4>)
INSTANCE(matvec<FormatQ6_K, 8>)
INSTANCE(matvec<Blocks<3>, 1>)
INSTANCE(matvec<Blocks<3>, 4>)
INSTANCE(matvec<Blocks<6>, 1>)
INSTANCE(matvec<Blocks<6>, 4>)
INSTANCE(matvec<Blocks<7>, 1>)
INSTANCE(matvec<Blocks<7>, 4>)
INSTANCE(matvec<Blocks<10>, 1>)
INSTANCE(matvec<Blocks<10>, 4>)
INSTANCE(matvec<Blocks<11>, 1>)
INSTANCE(matvec<Blocks<11>, 4>)
INSTANCE(matvec<Blocks<13>, 1>)
INSTANCE(matvec<Blocks<13>, 4>)
INSTANCE(matvec<Blocks<16>, 1>)
INSTANCE(matvec<Blocks<16>, 4>)
INSTANCE(matvec<Blocks<17>, 1>)
INSTANCE(matvec<Blocks<17>, 4>)
INSTANCE(matvec<Blocks<18>, 1>)
INSTANCE(matvec<Blocks<18>, 4>)
INSTANCE(matvec<Blocks<19>, 1>)
INSTANCE(matvec<Blocks<19>, 4>)
INSTANCE(matvec<Blocks<20>, 1>)
INSTANCE(matvec<Blocks<20>, 4>)
INSTANCE(matvec<Blocks<21>, 1>)
INSTANCE(matvec<Blocks<21>, 4>)
INSTANCE(matvec<Blocks<22>, 1>)
INSTANCE(matvec<Blocks<22>, 4>)
INSTANCE(matvec<Blocks<23>, 1>)
INSTANCE(matvec<Blocks<23>, 4>)
INSTANCE(matvec<Blocks<29>, 1>)
INSTANCE(matvec<Blocks<29>, 4>)
INSTANCE(matvec<Blocks<34>, 1>)
INSTANCE(matvec<Blocks<34>, 4>)
INSTANCE(matvec<Blocks<35>, 1>)
INSTANCE(matvec<Blocks<35>, 4>)
INSTANCE(matvec<Blocks<39>, 1>)
INSTANCE(matvec<Blocks<39>, 4>)
