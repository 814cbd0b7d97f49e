#pragma once

#include "../operations.h"

namespace kernel_test {

using RowSet = cuda_args::RowSet<const void*>;
using InputNorm = cuda_args::InputNorm<const void*>;
using ProductRows = cuda_args::ProductRows<const void*>;
using ProductOperands = cuda_args::ProductOperands<const void*>;
using SharedConversion = cuda_args::SharedConversion<const void*>;

// Rows of x in F32.
inline ProductRows float_rows(const float* x, const InputNorm& norm = {}) {
  return {.data = x, .scale = nullptr, .norm = norm, .padded_cols = 0};
}
cuda_args::WeightRows<const void*> weight_rows(const DeviceWeight& weight, u32 rows);
cuda_args::Epilogue<const void*> epilogue(const Epilogue& e, u32 out_stride);

// Rows of x converted by convert_rows: [rows of the set, pieces, padded_cols].
struct HalfRows {
  Buffer<u16> data;
  Buffer<float> scale;
  u32 padded_cols;

  ProductRows rows() const { return {data.data(), scale.data(), {}, padded_cols}; }
};
// chunk_cols: 0, or the columns of the weight's chunks, for products by wgmma with it.
HalfRows convert_rows(const DeviceWeight& weight, const float* x, const RowSet& set, u32 max_rows,
                      u32 pieces, const InputNorm& norm = {}, u32 chunk_cols = 0);

// Rows of x that a product with this weight converts itself.
struct ConvertedByProduct {
  HalfRows half;
  Buffer<u32> counters = {0, 0, 0};
  SharedConversion conversion;

  ConvertedByProduct(const DeviceWeight& weight, const float* x, const RowSet& set, u32 max_rows,
                     const InputNorm& norm = {});
  // Fails unless the counters are 0 again.
  ~ConvertedByProduct();
};

// The type that tensor cores read for a weight.
std::string half_of(const DeviceWeight& weight);

// Launches convert_rows and a product of a prompt on tensor cores for the rows of a set.
void launch_gemm(const Gemm& op, const RowSet& set);

// The same by wgmma, in tiles of 128 or 2 * 128 rows that `blocks` blocks share. False if the
// device is not of SM90.
bool launch_wgmma_gemm(const Gemm& op, const RowSet& set, u32 products, u32 blocks);

using Tiling = cuda_args::Tiling<const void*>;
// The tile of decode products: with rings of warps for one token (at_once 1), with a ring of the
// block for 8 (2), 32 (4) or 64 (8), and of file blocks in registers, for one or 8. The columns
// have `parts`.
struct DecodeTile {
  u32 token_tiles, tokens, rows, parts, shared, threads;
  enum class Place { registers, warp_rings, block_ring } place;
  u32 slices, stages;
};
DecodeTile decode_tile(const DeviceWeight& weight, u32 at_once, u32 parts = 1);
// The tile of experts.
DecodeTile expert_tile(const DeviceWeight& weight, u32 at_once);
// Calls run(grid, tiling) with the grid for these tokens and rows, of at most three blocks that
// share tiles, and with the memory that parts of a tile need.
template <class Run>
void with_tiling(const DecodeTile& tile, u32 tokens, u32 rows, const Run& run) {
  using Place = DecodeTile::Place;
  const u32 groups = blocks_for(tokens, tile.tokens), row_tiles = blocks_for(rows, tile.rows);
  const u32 units = row_tiles * (tile.place == Place::warp_rings ? 1 : tile.parts);
  const emulator::Dim3 grid = tile.place == Place::registers
                                  ? emulator::Dim3{groups, row_tiles, tile.parts}
                                  : emulator::Dim3{groups, std::min(units, 3u), 1};
  const u64 tiles = u64(groups) * row_tiles;
  const u32 sum_rows = tile.rows + (tile.place == Place::registers ? 4 : 0);
  Buffer<float> partial(tiles * tile.parts * tile.tokens * sum_rows);
  Buffer<u32> arrivals(tiles);
  std::fill(arrivals.begin(), arrivals.end(), 0);
  run(grid, Tiling{partial.data(), arrivals.data(), tile.parts, tile.rows, tile.slices,
                   tile.stages});
  for (const u32 count : arrivals) EXPECT(count == 0);
}
// As in "decode_gemm<FormatQ8_0, f16, 1>".
std::string decode_instance(const char* kernel, const DeviceWeight& w, const DecodeTile& tile);
// Launches a product of decoded tokens, whose columns op.split blocks share, and convert_rows
// before it for more than one if weights pass through registers.
void launch_decode_gemm(const Matvec& op, const RowSet& set, const InputNorm& norm = {});

// Groups the experts of the tokens of a set; ignores op's n_tokens.
void launch_moe_group(const PairGroups& op, const RowSet& set, u32 warps);
// Products with these experts, with the tiles of launch_moe_group: at most at_once pairs, or 8 if
// that is not 1, for decoded tokens; 64 for gemm.
void launch_grouped_matvec(const GroupedMatvec& op, const RowSet& set);
void launch_grouped_gemm(const GroupedMatvec& op, const RowSet& set, u32 max_tokens);
// The same of all tokens by wgmma, in tiles of 128 pairs.
bool launch_wgmma_grouped_gemm(const GroupedGemm& op, u32 products, u32 blocks);
// The gated unit of such a product, of one pair a block.
void launch_gated_grouped(const GroupedMatvec& op, const RowSet& set, u32 unit);

using NewRows = cuda_args::NewRows<const void*>;
// Decodes tokens whose queries, keys and values the kernel prepares itself.
void launch_rope_decode(const DecodeAttention& op, const NewRows& rows);

}  // namespace kernel_test
