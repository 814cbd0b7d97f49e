// Products of decoded tokens with the chosen experts: out[pair] = x of the pair's token (or of the
// pair itself) times the expert's block of the weight, plus its bias; gated_grouped_decode_gemm
// applies the gated unit to it in the same launch.
//
//   x: for one pair a block [.., cols] F32 when x_shared, else [.. * top_k, cols]; for several
//   converted to T, with top_k rows for each token unless x_shared
//   out [.. * top_k, rows] F32, or, of gated products, [.. * top_k, rows / 2]; an expert's block is
//   then the rows of its gate, followed by those of `up`
//   grid: (rows / 32, pairs for one a block, else the maximum number of tiles); block 256; dynamic
//   shared as in decode_gemm.cu
//   moves: the weights of the chosen experts, once per tile of an expert
//
// The method is that of decode_gemm.cuh.

#include "activation.cuh"
#include "decode_gemm.cuh"
#include "moe.cuh"

// The pairs of a block, which have one expert: those of a tile, numbered as in moe.cuh.
template <bool one>
struct BlockPairs {
  const RowSet& set;
  const ExpertPairs& e;
  u32 first = 0;

  // Returns their number; 0 beyond the last tile.
  DEVICE_MEMBER u32 begin() {
    if (blockIdx.y >= *e.n_tiles) return 0;
    const MoeTile tile = e.tiles[blockIdx.y];
    first = tile.first;
    return tile.count;
  }
  DEVICE_MEMBER u32 expert() const { return e.tiles[blockIdx.y].expert; }
  DEVICE_MEMBER u32 at(u32 i) const { return e.pairs[first + i]; }
};
// One pair a block, in the order of the pairs, which needs no sorting.
template <>
struct BlockPairs<true> {
  const RowSet& set;
  const ExpertPairs& e;

  DEVICE_MEMBER u32 begin() const { return blockIdx.y < *set.count * e.top_k; }
  DEVICE_MEMBER u32 expert() const {
    const u32 k = blockIdx.y % e.top_k;
    if (e.route == nullptr) return k;
    return u32(e.route[u64(row_of_set(set, blockIdx.y / e.top_k)) * 2 * e.top_k + k]);
  }
  DEVICE_MEMBER u32 at(u32) const { return blockIdx.y; }
};

// Blocks per multiprocessor, whose registers must suffice.
template <class F>
constexpr u32 kExpertResident = kDecodedByLoad<F> ? 1 : 2;

// Calls store(row, i, expert, pair, product_of) for output i = 0, 1, ... of the block's tile, whose
// first row is `row`, and each pair of the block; product_of(r) is the product with row r of the
// tile. row_of and `each` as in multiply_tile, of the expert.
template <class F, class T, u32 token_tiles, class RowOf, class Store>
DEVICE void multiply_pairs(void* memory, const ProductOperands& a, const ExpertPairs& e,
                           u32 each, RowOf row_of, Store store) {
  using Tile = DecodeTile<token_tiles>;
  BlockPairs<Tile::kOne> pairs{a.set, e};
  const u32 count = pairs.begin();
  if (count == 0) return;
  // The loop over columns leaves no register for it.
  SHARED(u32, expert, [1]);
  const u32 own = pairs.expert();
  if (threadIdx.x == 0) expert[0] = own;
  const WeightRows weight = rows_of_expert(a.weight, own);
  const float* x = nullptr;
  RowStart start;
  const auto begin_row = [&] {
    const u64 row = x_row_of_pair(a.set, e, pairs.at(0));
    x = static_cast<const float*>(a.x.data) + row * a.weight.cols;
    start = start_row(x, a.x.norm, a.weight.cols);
  };
  if constexpr (Tile::kOne && !kDecodedByLoad<F>) {
    RingProduct<F, T, RowOf> product(memory, weight, 1, blockIdx.x, blockIdx.x + 1, row_of);
    product.request();
    begin_row();
    product.round_x(x, a.x.norm, start);
    product.multiply(Tile::kRows / each, [&](u32 first, u32 i, auto product_of) {
      store(first, i, own, pairs.at(0), product_of);
    });
    return;
  }
  const u32 first_row = blockIdx.x * Tile::kRows, outputs = Tile::kRows / each;
  DecodeProduct<F, T, Tile> product(weight, [&](u32 i) { return row_of(first_row + i); });
  product.request();
  TileSums<Tile> sums;
  if constexpr (Tile::kOne) {
    begin_row();
    sums = product.multiply_row(memory, x, a.x.norm, start);
  } else {
    sums = product.multiply_rows(memory, count, a.x.padded_cols, [&](u32 i) {
      return static_cast<const T*>(a.x.data) +
             u64(converted_row_of_pair(e, pairs.at(i))) * a.x.padded_cols;
    });
  }
  for (u32 i = threadIdx.x; i < outputs * count; i += kThreads) {
    const u32 token = i / outputs, pair = pairs.at(token);
    const float scale = Tile::kOne ? sums.scale : a.x.scale[converted_row_of_pair(e, pair)];
    store(first_row, i % outputs, expert[0], pair,
          [&](u32 row) { return sums.at(row, token) * scale; });
  }
}

template <class F, class T, u32 token_tiles>
__global__ void __launch_bounds__(kThreads, kExpertResident<F>)
    grouped_decode_gemm(ProductOperands a, ExpertPairs e) {
  wait_for_previous_kernel();
  DYNAMIC_SHARED(uint4, memory);
  const u32 rows = a.weight.rows;
  multiply_pairs<F, T, token_tiles>(
      memory, a, e, 1, [=](u32 i) { return min(i, rows - 1); },
      [&](u32 first, u32 i, u32 expert, u32 pair, auto product_of) {
        if (first + i < rows) store_of_pair(a, e, expert, pair, first + i, product_of(i));
      });
}

template <class F, class T>
__global__ void __launch_bounds__(kThreads, kExpertResident<F>)
    gated_grouped_decode_gemm(ProductOperands a, ExpertPairs e, u32 unit) {
  wait_for_previous_kernel();
  DYNAMIC_SHARED(uint4, memory);
  const u32 width = a.weight.rows / 2;
  multiply_pairs<F, T, 0>(
      memory, a, e, 2, [=](u32 i) { return gated_row(i, width); },
      [&](u32 first, u32 i, u32 expert, u32 pair, auto product_of) {
        const u32 output = first / 2 + i, at = gate_in_tile(i);
        if (output >= width) return;
        float gate = product_of(at), up = product_of(at + 8);
        if (e.bias != nullptr) {
          const float* bias = e.bias + u64(expert) * 2 * width + output;
          gate += bias[0];
          up += bias[width];
        }
        a.out[out_row_of_pair(a.set, pair, e.top_k) * width + output] =
            gated_unit(unit, gate, up);
      });
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
INSTANCE(gated_grouped_decode_gemm<FormatF16, f16>)
INSTANCE(gated_grouped_decode_gemm<FormatBF16, bf16>)
INSTANCE(gated_grouped_decode_gemm<FormatQ8_0, f16>)
INSTANCE(gated_grouped_decode_gemm<FormatFP8, f16>)
INSTANCE(gated_grouped_decode_gemm<FormatQ4_0, f16>)
INSTANCE(gated_grouped_decode_gemm<FormatQ4_K, f16>)
INSTANCE(gated_grouped_decode_gemm<FormatQ6_K, f16>)
