// The gated unit of a decode step in one launch: out = unit(gate x, up x) for few tokens. The
// weight is the rows of `gate`, followed by the rows of `up`.
//
//   x [.., cols] F32; weight: 2 * width rows in the format F, row_stride bytes apart
//   out [.., width] F32, for the tokens of a set
//   grid: (width / (8 / split), tokens / tokens at once); block 256: 8 warps
//   moves: the weight, once per `tokens` tokens; the intermediate of matvec and glu, 16 bytes per
//   output, stays in registers
//
// The method and every sum are those of matvec.cu: the two rows of a warp are a row of the gate and
// the matching row of `up`.

#include "matvec.cuh"
#include "row_set.cuh"

template <class F, u32 tokens>
__global__ void __launch_bounds__(256, InFlight<F>::blocks_per_sm(tokens))
    gated_matvec(float* out, const float* x, const u8* weight, u64 row_stride, u32 width, u32 cols,
                 RowSet set, u32 unit, u32 split, const u64* codebooks) {
  wait_for_previous_kernel();
  const u32 first = blockIdx.y * tokens, count = *set.count;
  if (first >= count) return;
  TokenRows<tokens> token_rows;
#pragma unroll
  for (u32 t = 0; t < tokens; ++t) {
    token_rows.row[t] = x + u64(row_of_set(set, min(first + t, count - 1))) * cols;
  }
  const WeightRows rows = {weight, row_stride, 2 * width, cols, width};
  multiply_rows<F, tokens>(rows, token_rows, split, codebooks, [&](u32 row, u32 t, float product) {
    // Rows of the gate are in the first `tokens` lanes, rows of `up` in the next.
    constexpr u32 kPairs = (1u << 2 * tokens) - 1;
    const float up = __shfl_down_sync(kPairs, product, tokens);
    if (row % 2 == 1 || first + t >= count) return;
    const u64 to = u64(row_of_set(set, first + t)) * width + row / 2;
    out[to] = gated_unit(unit, product, up);
  });
}

INSTANCE(gated_matvec<FormatF32, 1>)
INSTANCE(gated_matvec<FormatF32, 2>)
INSTANCE(gated_matvec<FormatF32, 4>)
INSTANCE(gated_matvec<FormatF32, 8>)
INSTANCE(gated_matvec<FormatF16, 1>)
INSTANCE(gated_matvec<FormatF16, 2>)
INSTANCE(gated_matvec<FormatF16, 4>)
INSTANCE(gated_matvec<FormatF16, 8>)
INSTANCE(gated_matvec<FormatBF16, 1>)
INSTANCE(gated_matvec<FormatBF16, 2>)
INSTANCE(gated_matvec<FormatBF16, 4>)
INSTANCE(gated_matvec<FormatBF16, 8>)
INSTANCE(gated_matvec<FormatQ8_0, 1>)
INSTANCE(gated_matvec<FormatQ8_0, 2>)
INSTANCE(gated_matvec<FormatQ8_0, 4>)
INSTANCE(gated_matvec<FormatQ8_0, 8>)
INSTANCE(gated_matvec<FormatFP8, 1>)
INSTANCE(gated_matvec<FormatFP8, 2>)
INSTANCE(gated_matvec<FormatFP8, 4>)
INSTANCE(gated_matvec<FormatFP8, 8>)
INSTANCE(gated_matvec<FormatQ4_0, 1>)
INSTANCE(gated_matvec<FormatQ4_0, 2>)
INSTANCE(gated_matvec<FormatQ4_0, 4>)
INSTANCE(gated_matvec<FormatQ4_0, 8>)
INSTANCE(gated_matvec<FormatQ4_K, 1>)
INSTANCE(gated_matvec<FormatQ4_K, 2>)
INSTANCE(gated_matvec<FormatQ4_K, 4>)
INSTANCE(gated_matvec<FormatQ4_K, 8>)
INSTANCE(gated_matvec<FormatQ6_K, 1>)
INSTANCE(gated_matvec<FormatQ6_K, 2>)
INSTANCE(gated_matvec<FormatQ6_K, 4>)
INSTANCE(gated_matvec<FormatQ6_K, 8>)
