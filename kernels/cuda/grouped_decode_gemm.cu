// Products of decoded tokens with the chosen experts: out[pair] = x of the pair's token (or of the
// pair itself) times the expert's block of the weight, plus its bias.
//
//   x: for one pair a tile [.., cols] F32 when x_shared, else [.. * top_k, cols]; for several
//   converted to T, with top_k rows for each token unless x_shared
//   out [.. * top_k, rows] F32: pairs as in moe.cuh, as many a tile as a block has tokens
//   grid: (rows / 32, maximum number of tiles); block 256; dynamic shared as in decode_gemm.cu
//   moves: the weights of the chosen experts, once per tile of an expert
//
// The method is that of decode_gemm.cuh.

#include "decode_gemm.cuh"
#include "moe.cuh"

template <class F, class T, u32 token_tiles>
__global__ void __launch_bounds__(kThreads, kResident<F, token_tiles>)
    grouped_decode_gemm(ProductOperands a, ExpertPairs e) {
  wait_for_previous_kernel();
  using Tile = DecodeTile<token_tiles>;
  DYNAMIC_SHARED(uint4, memory);
  if (blockIdx.y >= *e.n_tiles) return;
  const MoeTile tile = e.tiles[blockIdx.y];
  const u32 first_row = blockIdx.x * Tile::kRows, rows = a.weight.rows;
  const u32* own = e.pairs + tile.first;
  DecodeProduct<F, T, token_tiles> product(
      rows_of_expert(a.weight, tile.expert),
      [&](u32 i) { return min(first_row + i, rows - 1); });
  product.request();

  TileSums<token_tiles> sums;
  if constexpr (Tile::kOne) {
    const u64 row = x_row_of_pair(a.set, e, own[0]);
    sums = product.multiply_row(
        memory, static_cast<const float*>(a.x.data) + row * a.weight.cols, a.x.norm);
  } else {
    sums = product.multiply_rows(memory, tile.count, a.x.padded_cols, [&](u32 i) {
      return static_cast<const T*>(a.x.data) +
             u64(converted_row_of_pair(e, own[i])) * a.x.padded_cols;
    });
  }
  for (u32 i = threadIdx.x; i < Tile::kRows * tile.count; i += kThreads) {
    const u32 row = i % Tile::kRows, token = i / Tile::kRows;
    if (first_row + row >= rows) continue;
    const float scale =
        Tile::kOne ? sums.scale : a.x.scale[converted_row_of_pair(e, own[token])];
    // The expert is read again, because the loop above needs its register.
    store_of_pair(a, e, e.tiles[blockIdx.y].expert, own[token], first_row + row,
                  sums.at(row, token) * scale);
  }
}

INSTANCE(grouped_decode_gemm<FormatF16, f16, 0>)
INSTANCE(grouped_decode_gemm<FormatF16, f16, 1>)
INSTANCE(grouped_decode_gemm<FormatBF16, bf16, 0>)
INSTANCE(grouped_decode_gemm<FormatBF16, bf16, 1>)
INSTANCE(grouped_decode_gemm<FormatQ8_0, f16, 0>)
INSTANCE(grouped_decode_gemm<FormatQ8_0, f16, 1>)
INSTANCE(grouped_decode_gemm<FormatFP8, f16, 0>)
INSTANCE(grouped_decode_gemm<FormatFP8, f16, 1>)
INSTANCE(grouped_decode_gemm<FormatQ4_0, f16, 0>)
INSTANCE(grouped_decode_gemm<FormatQ4_0, f16, 1>)
INSTANCE(grouped_decode_gemm<FormatQ4_K, f16, 0>)
INSTANCE(grouped_decode_gemm<FormatQ4_K, f16, 1>)
INSTANCE(grouped_decode_gemm<FormatQ6_K, f16, 0>)
INSTANCE(grouped_decode_gemm<FormatQ6_K, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<3>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<3>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<6>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<6>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<7>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<7>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<10>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<10>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<11>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<11>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<13>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<13>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<16>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<16>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<17>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<17>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<18>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<18>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<19>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<19>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<20>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<20>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<21>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<21>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<22>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<22>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<23>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<23>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<29>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<29>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<34>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<34>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<35>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<35>, f16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<39>, bf16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<39>, bf16, 1>)
INSTANCE(grouped_decode_gemm<Blocks<257>, f16, 0>)
INSTANCE(grouped_decode_gemm<Blocks<257>, f16, 1>)
