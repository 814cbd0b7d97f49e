// Products of prompts with the chosen experts: out[pair] = x of the pair's token (or of the pair
// itself) times the expert's block of the weight, plus its bias. Buffers and geometry:
// moe_arguments.h; the method: gemm.h.

#include "gemm.h"

// The pairs of a tile.
template <class T>
struct PairTokens {
  device const T* x;
  device const uint* pairs;
  uint stride;
  uint top_k;
  uint x_shared;
  uint count;

  uint number(uint i) const { return x_shared != 0 ? pairs[i] / top_k : pairs[i]; }
  device const T* row(uint i) const { return x + ulong(number(i)) * stride; }
};

template <class F>
[[kernel, max_total_threads_per_threadgroup(128)]] void grouped_gemm(
    device float* out [[buffer(0)]],
    device const typename TileFormat<F>::Tile* x [[buffer(1)]],
    device const float* factors [[buffer(2)]], device const u8* weight [[buffer(3)]],
    device const MoeTile* tiles [[buffer(4)]], device const uint* n_tiles [[buffer(5)]],
    device const uint* pairs [[buffer(6)]], device const float* bias [[buffer(7)]],
    device const ulong* codebooks [[buffer(8)]], constant GroupedMatvecArgs& args [[buffer(9)]],
    uint2 at [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float4 memory[kGemmFours];
  if (at.y >= *n_tiles) return;
  const MoeTile tile = tiles[at.y];
  const uint first_row = at.x * kGemmRows;
  const ulong expert_row = ulong(tile.expert) * args.expert_rows;
  const PairTokens<typename TileFormat<F>::Tile> own = {
      x, pairs + tile.first, token_stride<F>(args.cols), args.top_k, args.x_shared, tile.count};
  const WeightRows rows = weight_rows(weight + expert_row * args.row_stride, args.row_stride,
                                      args.expert_rows, args.cols);
  threadgroup const float* products =
      multiply_tile<F>(memory, rows, first_row, own, codebooks, thread_index, simdgroup);

  const uint row = first_row + thread_index % kGemmRows;
  if (row >= args.expert_rows) return;
  const float shift = args.has_bias != 0 ? bias[expert_row + row] : 0.0f;
  for (uint t = thread_index / kGemmRows; t < own.count; t += kThreads / kGemmRows) {
    const float product = products[t * kGemmRows + thread_index % kGemmRows];
    out[ulong(own.pairs[t]) * args.expert_rows + row] =
        product * token_factor<F>(factors, own.number(t)) + shift;
  }
}

INSTANCE(grouped_gemm<FormatF32>)
INSTANCE(grouped_gemm<FormatF16>)
INSTANCE(grouped_gemm<FormatBF16>)
INSTANCE(grouped_gemm<FormatQ8_0>)
INSTANCE(grouped_gemm<FormatFP8>)
INSTANCE(grouped_gemm<FormatQ4_0>)
INSTANCE(grouped_gemm<FormatQ4_K>)
INSTANCE(grouped_gemm<FormatQ6_K>)
INSTANCE(grouped_gemm<Blocks<3>>)
INSTANCE(grouped_gemm<Blocks<6>>)
INSTANCE(grouped_gemm<Blocks<7>>)
INSTANCE(grouped_gemm<Blocks<10>>)
INSTANCE(grouped_gemm<Blocks<11>>)
INSTANCE(grouped_gemm<Blocks<13>>)
INSTANCE(grouped_gemm<Blocks<16>>)
INSTANCE(grouped_gemm<Blocks<17>>)
INSTANCE(grouped_gemm<Blocks<18>>)
INSTANCE(grouped_gemm<Blocks<19>>)
INSTANCE(grouped_gemm<Blocks<20>>)
INSTANCE(grouped_gemm<Blocks<21>>)
INSTANCE(grouped_gemm<Blocks<22>>)
INSTANCE(grouped_gemm<Blocks<23>>)
INSTANCE(grouped_gemm<Blocks<29>>)
INSTANCE(grouped_gemm<Blocks<34>>)
INSTANCE(grouped_gemm<Blocks<35>>)
INSTANCE(grouped_gemm<Blocks<39>>)
INSTANCE(grouped_gemm<Blocks<257>>)
