// Products with the chosen experts: out[pair] = x of the pair's token (or of the pair itself) times
// the expert's block of the weight, plus its bias. Buffers and geometry: arguments.h; the method:
// matvec.h.

#include "matvec.h"

struct StorePairs {
  device float* out;
  device const uint* pairs;
  device const float* bias;  // of the expert
  uint expert_rows;
  uint has_bias;
  MoeTile tile;

  void operator()(uint row, uint t, RowProduct p) const {
    if (t >= tile.count) return;
    const float sum = has_bias != 0 ? p.product + bias[row] : p.product;
    out[ulong(pairs[tile.first + t]) * expert_rows + row] = sum;
  }
};

template <class F, uint tokens>
[[kernel, max_total_threads_per_threadgroup(256)]] void grouped_matvec(
    device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
    device const u8* weight [[buffer(2)]], device const MoeTile* tiles [[buffer(3)]],
    device const uint* n_tiles [[buffer(4)]], device const uint* pairs [[buffer(5)]],
    device const float* bias [[buffer(6)]], device const ulong* codebooks [[buffer(7)]],
    constant GroupedMatvecArgs& args [[buffer(8)]], uint2 at [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[PartialSums<F, tokens, PlainTokens<tokens>>::kCount];
  if (at.y >= *n_tiles) return;
  const MoeTile tile = tiles[at.y];
  PlainTokens<tokens> token_rows;
  for (uint t = 0; t < tokens; ++t) {
    const uint pair = pairs[tile.first + min(t, tile.count - 1)];
    token_rows.row[t] = x + ulong(args.x_shared != 0 ? pair / args.top_k : pair) * args.cols;
  }
  const ulong first_row = ulong(tile.expert) * args.expert_rows;
  const WeightRows rows = weight_rows(weight + first_row * args.row_stride, args.row_stride,
                                      args.expert_rows, args.cols);
  const StorePairs store = {out, pairs, bias + first_row, args.expert_rows, args.has_bias, tile};
  multiply_rows<F, tokens>(rows, token_rows, at.x, args.split, codebooks, partial,
                           {thread_index, lane, simdgroup, n_simdgroups}, store);
}

INSTANCE(grouped_matvec<FormatF32, 1>)
INSTANCE(grouped_matvec<FormatF32, 2>)
INSTANCE(grouped_matvec<FormatF32, 4>)
INSTANCE(grouped_matvec<FormatF32, 8>)
INSTANCE(grouped_matvec<FormatF16, 1>)
INSTANCE(grouped_matvec<FormatF16, 2>)
INSTANCE(grouped_matvec<FormatF16, 4>)
INSTANCE(grouped_matvec<FormatF16, 8>)
INSTANCE(grouped_matvec<FormatBF16, 1>)
INSTANCE(grouped_matvec<FormatBF16, 2>)
INSTANCE(grouped_matvec<FormatBF16, 4>)
INSTANCE(grouped_matvec<FormatBF16, 8>)
INSTANCE(grouped_matvec<FormatQ8_0, 1>)
INSTANCE(grouped_matvec<FormatQ8_0, 2>)
INSTANCE(grouped_matvec<FormatQ8_0, 4>)
INSTANCE(grouped_matvec<FormatQ8_0, 8>)
INSTANCE(grouped_matvec<FormatFP8, 1>)
INSTANCE(grouped_matvec<FormatFP8, 2>)
INSTANCE(grouped_matvec<FormatFP8, 4>)
INSTANCE(grouped_matvec<FormatFP8, 8>)
INSTANCE(grouped_matvec<FormatQ4_0, 1>)
INSTANCE(grouped_matvec<FormatQ4_0, 2>)
INSTANCE(grouped_matvec<FormatQ4_0, 4>)
INSTANCE(grouped_matvec<FormatQ4_0, 8>)
INSTANCE(grouped_matvec<FormatQ4_K, 1>)
INSTANCE(grouped_matvec<FormatQ4_K, 2>)
INSTANCE(grouped_matvec<FormatQ4_K, 4>)
INSTANCE(grouped_matvec<FormatQ4_K, 8>)
INSTANCE(grouped_matvec<FormatQ6_K, 1>)
INSTANCE(grouped_matvec<FormatQ6_K, 2>)
INSTANCE(grouped_matvec<FormatQ6_K, 4>)
INSTANCE(grouped_matvec<FormatQ6_K, 8>)
INSTANCE(grouped_matvec<Blocks<3>, 1>)
INSTANCE(grouped_matvec<Blocks<3>, 4>)
INSTANCE(grouped_matvec<Blocks<6>, 1>)
INSTANCE(grouped_matvec<Blocks<6>, 4>)
INSTANCE(grouped_matvec<Blocks<7>, 1>)
INSTANCE(grouped_matvec<Blocks<7>, 4>)
INSTANCE(grouped_matvec<Blocks<10>, 1>)
INSTANCE(grouped_matvec<Blocks<10>, 4>)
INSTANCE(grouped_matvec<Blocks<11>, 1>)
INSTANCE(grouped_matvec<Blocks<11>, 4>)
INSTANCE(grouped_matvec<Blocks<13>, 1>)
INSTANCE(grouped_matvec<Blocks<13>, 4>)
INSTANCE(grouped_matvec<Blocks<16>, 1>)
INSTANCE(grouped_matvec<Blocks<16>, 4>)
INSTANCE(grouped_matvec<Blocks<17>, 1>)
INSTANCE(grouped_matvec<Blocks<17>, 4>)
INSTANCE(grouped_matvec<Blocks<18>, 1>)
INSTANCE(grouped_matvec<Blocks<18>, 4>)
INSTANCE(grouped_matvec<Blocks<19>, 1>)
INSTANCE(grouped_matvec<Blocks<19>, 4>)
INSTANCE(grouped_matvec<Blocks<20>, 1>)
INSTANCE(grouped_matvec<Blocks<20>, 4>)
INSTANCE(grouped_matvec<Blocks<21>, 1>)
INSTANCE(grouped_matvec<Blocks<21>, 4>)
INSTANCE(grouped_matvec<Blocks<22>, 1>)
INSTANCE(grouped_matvec<Blocks<22>, 4>)
INSTANCE(grouped_matvec<Blocks<23>, 1>)
INSTANCE(grouped_matvec<Blocks<23>, 4>)
INSTANCE(grouped_matvec<Blocks<29>, 1>)
INSTANCE(grouped_matvec<Blocks<29>, 4>)
INSTANCE(grouped_matvec<Blocks<34>, 1>)
INSTANCE(grouped_matvec<Blocks<34>, 4>)
INSTANCE(grouped_matvec<Blocks<35>, 1>)
INSTANCE(grouped_matvec<Blocks<35>, 4>)
INSTANCE(grouped_matvec<Blocks<39>, 1>)
INSTANCE(grouped_matvec<Blocks<39>, 4>)
INSTANCE(grouped_matvec<Blocks<257>, 1>)
INSTANCE(grouped_matvec<Blocks<257>, 4>)
