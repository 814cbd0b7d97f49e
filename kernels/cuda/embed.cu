// out[token] = x[token] + scale * row of an embedding, for the id or position of each token.
//
//   weight: the embedding in any format F, row_stride bytes apart; x and out [tokens, cols] F32
//   grid: a block per token; block 128

#include "blocks.cuh"
#include "row_arguments.h"

template <class F>
LARGE_KERNEL embed(ARGUMENT(Embed) a) {
  wait_for_previous_kernel();
  const u32 token = blockIdx.x;
  if (token >= *a.n_tokens) return;
  const u8* row = a.weight + u64(u32(a.ids[token]) / a.period % a.rows) * a.row_stride;
  float* to = a.out + u64(token) * a.cols;
  const float* x = a.has_x ? a.x + u64(token) * a.cols : nullptr;
  for (u32 chunk = threadIdx.x; chunk < chunks_of<F>(a.cols); chunk += blockDim.x) {
    const typename F::Chunk c = F::load(row, a.cols, chunk, a.codebooks);
    for (u32 p = 0; p < F::kCols / 8; ++p) {
      float w[8];
      F::floats(c, p, w);
      for (u32 k = 0; k < 8; ++k) {
        const u32 col = chunk * F::kCols + 8 * p + k;
        if (col < a.cols) to[col] = x ? x[col] + w[k] : w[k] * a.scale;
      }
    }
  }
}

INSTANCE(embed<FormatF32>)
INSTANCE(embed<FormatF16>)
INSTANCE(embed<FormatBF16>)
INSTANCE(embed<FormatQ8_0>)
INSTANCE(embed<FormatFP8>)
INSTANCE(embed<FormatQ4_0>)
INSTANCE(embed<FormatQ4_K>)
INSTANCE(embed<FormatQ6_K>)
INSTANCE(embed<Blocks<3>>)
INSTANCE(embed<Blocks<6>>)
INSTANCE(embed<Blocks<7>>)
INSTANCE(embed<Blocks<10>>)
INSTANCE(embed<Blocks<11>>)
INSTANCE(embed<Blocks<13>>)
INSTANCE(embed<Blocks<16>>)
INSTANCE(embed<Blocks<17>>)
INSTANCE(embed<Blocks<18>>)
INSTANCE(embed<Blocks<19>>)
INSTANCE(embed<Blocks<20>>)
INSTANCE(embed<Blocks<21>>)
INSTANCE(embed<Blocks<22>>)
INSTANCE(embed<Blocks<23>>)
INSTANCE(embed<Blocks<29>>)
INSTANCE(embed<Blocks<34>>)
INSTANCE(embed<Blocks<35>>)
INSTANCE(embed<Blocks<39>>)
INSTANCE(embed<Blocks<257>>)
