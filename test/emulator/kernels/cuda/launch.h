#pragma once

#include "../operations.h"

namespace kernel_test {

using RowSet = cuda_args::RowSet<const void*>;
using InputNorm = cuda_args::InputNorm<const void*>;
using ProductRows = cuda_args::ProductRows<const void*>;
using ProductOperands = cuda_args::ProductOperands<const void*>;

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

// The type that tensor cores read for a weight.
std::string half_of(const DeviceWeight& weight);

// Launches convert_rows and a product of a prompt on tensor cores for the rows of a set.
void launch_gemm(const Gemm& op, const RowSet& set);

// The same by wgmma, in tiles of 128 or 2 * 128 rows that `blocks` blocks share. False if the
// device is not of SM90.
bool launch_wgmma_gemm(const Gemm& op, const RowSet& set, u32 products, u32 blocks);

using ColumnSplit = cuda_args::ColumnSplit<const void*>;
// The tile of decode products, for one token if at_once is 1, else for 8 (2; 3: with rings), 32 (4)
// or 64 (8); its columns have `split` parts.
struct DecodeTile {
  u32 token_tiles, tokens, rows, split, shared;
  bool is_short;    // half of the rows; here of tiles that several blocks share
  u32 ring_blocks;  // of a grid whose blocks share the tiles; 0: a block a tile
};
DecodeTile decode_tile(const DeviceWeight& weight, u32 at_once, u32 split = 1);
// The tile of experts.
DecodeTile expert_tile(const DeviceWeight& weight, u32 at_once);
// Calls run(grid, split) with the grid for these tokens and rows, and the memory that split blocks
// need.
template <class Run>
void with_split(const DecodeTile& tile, u32 tokens, u32 rows, const Run& run) {
  if (tile.ring_blocks > 0) {
    const u32 row_tiles = blocks_for(rows, tile.rows);
    const emulator::Dim3 grid{blocks_for(tokens, tile.tokens),
                              std::min(row_tiles, tile.ring_blocks), 1};
    return run(grid, ColumnSplit{nullptr, nullptr, tile.split});
  }
  const emulator::Dim3 grid{blocks_for(tokens, tile.tokens), blocks_for(rows, tile.rows),
                            tile.split};
  const u64 tiles = u64(grid.x) * grid.y;
  Buffer<float> partial(tiles * tile.split * tile.tokens * (tile.rows + 4));
  Buffer<u32> arrivals(tiles);
  std::fill(arrivals.begin(), arrivals.end(), 0);
  run(grid, ColumnSplit{partial.data(), arrivals.data(), tile.split});
  for (const u32 count : arrivals) EXPECT(count == 0);
}
// As in "decode_gemm<FormatQ8_0, f16, 1>".
std::string decode_instance(const char* kernel, const DeviceWeight& w, const DecodeTile& tile);
// Launches a product of decoded tokens, whose columns op.split blocks share, and convert_rows
// before it for more than one.
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
