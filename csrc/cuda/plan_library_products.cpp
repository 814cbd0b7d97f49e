// Products of many rows by cuBLASLt.

#include <algorithm>
#include <bit>

#include "plan_builder.h"

namespace forge::cuda {

namespace {

// Fewest rows for cuBLASLt: of 16-bit weights, and of others, for which unpacking (2.5 bytes a
// weight through memory and cache) must cost little compared with multiplying.
constexpr uint32_t kFewestLtRows = 65;
constexpr uint32_t kFewestUnpackedLtRows = 256;
// Bytes of unpacked weights in a tile, which stay in the L2 cache until they are multiplied.
constexpr uint64_t kTileBytes = 32u << 20;
constexpr uint32_t kTileRows = 128;
constexpr uint32_t kEpilogueCols = 1024;
constexpr uint32_t kDequantizeCols = 4096;
// Alignment of the parts of a weight (cuda_weight.cpp) and of its unpacked tiles.
constexpr uint32_t kWeightAlignment = 256;

bool is_half(WeightType type) { return type == WeightType::F16 || type == WeightType::BF16; }

// Rows of a weight that are unpacked at a time.
uint64_t rows_of_tile(uint64_t rows, uint32_t padded) {
  const uint64_t wanted = std::max<uint64_t>(kTileBytes / (padded * 2ull) / kTileRows, 1);
  return std::min({rows, wanted * kTileRows, uint64_t{kMostGridRows}});
}

// The largest power of two, up to 256, that divides an offset.
uint32_t alignment_of(uint64_t offset) {
  return static_cast<uint32_t>(1u << std::countr_zero(offset | 256));
}

// True if the library computes an epilogue.
bool is_linear(const Epilogue& e) { return !e.bias && e.activation == FORGE_IDENTITY; }

}  // namespace

LtShape PlanBuilder::library_shape(const Product& p, const RowGroup& rows) const {
  const uint32_t padded = padded_cols(p.weight.cols);
  const uint64_t stride = is_half(p.type) ? p.weight.row_stride / 2 : padded;
  LtShape shape{.is_bf16 = multiplies_as_bf16(p.type),
                .tokens = rows.max_rows,
                .rows = p.weight.rows,
                .cols = static_cast<uint32_t>(stride),
                .x_stride = padded,
                .weight_stride = stride,
                .out_stride = p.weight.rows,
                .weight_alignment = kWeightAlignment,
                .out_alignment = kScratchAlignment};
  // A list of rows: the library writes to scratch memory, and a kernel scatters the rows.
  if (rows.kind == RowKind::all) {
    shape.out_stride = p.epilogue.out_stride;
    shape.out_alignment = alignment_of(p.first_row * sizeof(float));
  }
  return shape;
}

bool PlanBuilder::emit_library_product(const Product& p, const RowGroup& rows) {
  const bool unpacks = !is_half(p.type), in_place = rows.kind == RowKind::all;
  if (rows.max_rows < (unpacks ? kFewestUnpackedLtRows : kFewestLtRows)) return false;
  CublasLt& library = device_.cublaslt();
  if (!library.problem().empty()) return false;

  const uint32_t padded = padded_cols(p.weight.cols);
  const uint64_t tile_rows = unpacks ? rows_of_tile(p.weight.rows, padded) : p.weight.rows;
  LtShape shape = library_shape(p, rows);
  struct Tile {
    const LtProduct* product;
    uint32_t first_row, n_rows;
  };
  std::vector<Tile> tiles;
  uint64_t workspace_bytes = 0;
  for (uint32_t first = 0; first < p.weight.rows; first += shape.rows) {
    shape.rows = static_cast<uint32_t>(std::min<uint64_t>(tile_rows, p.weight.rows - first));
    const LtProduct* product = library.product(shape);
    if (!product) return false;
    tiles.push_back({product, first, shape.rows});
    workspace_bytes = std::max(workspace_bytes, CublasLt::workspace_bytes(*product));
  }

  const ProductRows half = half_rows(p, rows);
  const uint64_t kept = scratch_used_;
  const DevicePointer workspace = scratch(workspace_bytes);
  const DevicePointer unpacked = scratch(unpacks ? tile_rows * padded * 2 : 0);
  // Rows in F16 may have scales.
  const bool is_whole = in_place && shape.is_bf16 && is_linear(p.epilogue);
  const DevicePointer residual = is_whole ? p.epilogue.residual : 0;
  const DevicePointer out =
      in_place ? p.out : scratch(uint64_t{rows.max_rows} * p.weight.rows * sizeof(float));
  for (const Tile& tile : tiles) {
    if (unpacks) {
      cuda_args::Dequantize<DevicePointer> unpack = {
          .out = unpacked, .weight = p.weight, .padded_cols = padded};
      unpack.weight.data += tile.first_row * p.weight.row_stride;
      unpack.weight.rows = tile.n_rows;
      launch("dequantize.cu", half_instance("dequantize", p.type),
             {divide_up(padded, kDequantizeCols), tile.n_rows}, 128, 0, unpack);
    }
    const uint64_t skip = tile.first_row * sizeof(float);
    plan_.entries.emplace_back(std::in_place_type<LtCall>, library, *tile.product,
                               LtOperands{.out = out + skip,
                                          .x = half.data,
                                          .weight = unpacks ? unpacked : p.weight.data,
                                          .residual = residual ? residual + skip : 0,
                                          .alpha = is_whole ? p.epilogue.alpha : 1},
                               workspace);
  }
  if (!is_whole) {
    // As few for a row as fill the device: most of them only read its scale.
    const uint32_t blocks = std::min(divide_up(p.weight.rows, kEpilogueCols),
                                     divide_up(8 * gpu_.multiprocessors, rows.max_rows));
    launch("epilogue.cu", "epilogue", {blocks, rows.max_rows}, 256, 0,
           cuda_args::LibraryProduct<DevicePointer>{
               .out = p.out,
               .product = out,
               .x_scale = half.scale,
               .set = rows.set,
               .cols = p.weight.rows,
               .product_stride = static_cast<uint32_t>(shape.out_stride)},
           p.epilogue);
  }
  scratch_used_ = kept;
  return true;
}

}  // namespace forge::cuda
