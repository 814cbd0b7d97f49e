// Products with weights.

#include <algorithm>
#include <bit>

#include "plan_builder.h"

namespace forge::cuda {

namespace {

constexpr uint32_t kMostMatvecTokens = 8;
// Most blocks that share the columns of a tile of decode_gemm.
constexpr uint32_t kMostColumnSplits = 8;
// Fewest elements of a row per warp when warps of matvec share it.
constexpr uint32_t kSplitCols = 512;
// Most tokens of a block with rings of weights, and the bytes of its rings for one token and for
// more (kernels/cuda/weight_ring.cuh).
constexpr uint32_t kRingTokens = 8, kOneTokenRings = 8 * 9216, kTokenRings = 8 * 18432;
// Shared memory of a block besides its dynamic one: arrays of fixed size, and 1 KB that the device
// keeps for itself.
constexpr uint32_t kStaticShared = 2048;

}  // namespace

// MXFP4 has the exponents of F32, and BF16 represents its weights exactly.
bool multiplies_as_bf16(WeightType type) {
  return type == WeightType::BF16 || type == WeightType::MXFP4;
}

static const char* half_of(WeightType type) { return multiplies_as_bf16(type) ? "bf16" : "f16"; }

// Kernels of products, by the rows of x and the type of the weight. All sums of a kernel are added
// in the same order for any number of rows, so that each row of this table has digits of its own:
//
//   F32 weights, any rows    matvec       exact; few tensors, such as routers
//   decode rows              decode_gemm  the weight is read once and becomes the operand of tensor
//                                         cores in registers, for one token as for 64: arithmetic
//                                         on two F16 at once takes half of the instructions of F32
//   prefill rows             cuBLASLt     fastest where it is present and rows are many
//     else on SM90           wgmma_gemm   the full rate of tensor cores, and no second pass for the
//       or                   wgmma_quantized_gemm
//                                         epilogue; mma.sync reaches 62% of it
//     elsewhere              gemm         also with NVRTC or a driver before CUDA 12, and of file
//                                         blocks, whose decoded weights would fill the registers
uint32_t matvec_tokens(uint32_t rows) { return std::min(std::bit_ceil(rows), kMostMatvecTokens); }

// Rows of a tile of decode_gemm (kWeightRowTiles of kernels/cuda/decode_gemm.cuh), by its tokens.
static uint32_t tile_rows(const WeightFormat& format, uint32_t token_tiles) {
  if (format.is_generic) return 32;
  return token_tiles == 4 ? 128 : 64;
}

// Parts of the columns of a weight, whose sums decode_gemm adds up last, so that a weight of few
// rows fills the device: each multiprocessor has one and a half tiles of one token, or each slice
// of a row just one span of columns (kernels/cuda/decode_gemm.cuh). They do not depend on the
// number of tokens, because the order of sums does not.
static uint32_t column_splits(uint64_t rows, uint64_t cols, const WeightFormat& format,
                              uint32_t multiprocessors) {
  const uint64_t tiles = divide_up(rows, tile_rows(format, 0));
  uint32_t splits = 1;
  while (splits < kMostColumnSplits && cols >= 2 * splits * kSplitCols &&
         2 * tiles * splits < 3 * multiprocessors) {
    splits *= 2;
  }
  return splits;
}

// The tiles of decode_gemm, by tokens:
//
//   1    x is rounded by the kernel itself, which saves a launch. Weights pass through rings in
//        shared memory, 16 or 32 rows at a time, but those of file blocks do not
//   8    one tile of the tensor cores; rings, if the rows of x fit next to them. File blocks, whose
//        decoded weights fill the registers, use no larger one
//   32   128 rows of the weight share x in shared memory, which smaller devices have for 32 tokens;
//        or 64
//   64   and others for twice as many
ProductTile PlanBuilder::weight_tile(uint32_t tokens, uint64_t rows, uint64_t cols,
                                     const WeightFormat& format) const {
  const uint32_t splits = column_splits(rows, cols, format, gpu_.multiprocessors);
  if (const auto tile = ring_tile(tokens, cols, splits, format)) return *tile;
  // The largest part of a row.
  ProductTile tile = expert_tile(tokens, divide_up(divide_up(cols, 128), splits) * 128, format);
  tile.splits = splits;
  tile.rows = tile_rows(format, tile.token_tiles);
  // The sums of four slices may take more than the ring.
  tile.shared_bytes = std::max<uint32_t>(tile.shared_bytes, 16 * tile.tokens * (tile.rows + 4));
  return tile;
}

ProductTile PlanBuilder::product_tile(uint32_t tokens, uint64_t rows, uint64_t cols,
                                      const WeightFormat& format) const {
  ProductTile tile = weight_tile(tokens, rows, cols, format);
  const uint64_t blocks = divide_up(rows, tile.rows) * tile.splits;
  tile.is_short =
      tile.token_tiles == 4 && 4 * blocks < 3 * tile.resident * gpu_.multiprocessors;
  if (tile.is_short) tile.rows /= 2;
  return tile;
}

// True if a block may have this much dynamic shared memory, or blocks as much together.
bool PlanBuilder::fits(uint64_t shared_bytes, uint32_t blocks) const {
  return blocks * (shared_bytes + kStaticShared) <= gpu_.max_shared_bytes + 1024;
}

std::optional<ProductTile> PlanBuilder::ring_tile(uint32_t tokens, uint64_t cols, uint32_t splits,
                                                  const WeightFormat& format) const {
  if (tokens > kRingTokens || format.is_generic) return std::nullopt;
  const bool is_one = tokens <= 1;
  const uint32_t rows = splits == 1 ? 32 : 16, tile_tokens = is_one ? 1 : kRingTokens;
  const uint64_t sums = 2 * 4 * splits * rows * tile_tokens * sizeof(float);
  const uint64_t x = std::max(tokens, 1u) * padded_to(cols, 128) * 2;
  const uint64_t shared_bytes = (is_one ? kOneTokenRings : kTokenRings) + sums + x;
  if (!fits(shared_bytes)) return std::nullopt;
  const uint32_t resident = fits(shared_bytes, 2) ? 2 : 1;
  return ProductTile{.token_tiles = is_one ? 0u : 1u,
                     .tokens = tile_tokens,
                     .rows = rows,
                     .splits = splits,
                     .resident = resident,
                     .shared_bytes = static_cast<uint32_t>(shared_bytes),
                     .ring_blocks = resident * gpu_.multiprocessors};
}

ProductTile PlanBuilder::expert_tile(uint32_t tokens, uint64_t cols,
                                     const WeightFormat& format) const {
  const uint64_t row_bytes = padded_to(cols, 128) * 2;
  if (tokens <= 1) {
    if (const auto tile = ring_tile(tokens, cols, 1, format)) return *tile;
  }
  if (tokens <= 1 && format.is_generic && fits(row_bytes)) {
    return {.token_tiles = 0,
            .tokens = 1,
            .rows = 32,
            .splits = 1,
            .resident = 1,
            .shared_bytes = static_cast<uint32_t>(std::max<uint64_t>(row_bytes, 1024))};
  }
  const auto ring = [](uint32_t n) { return n * 8 * 256 * 4 * (n >= 4 ? 2 : 3); };
  uint32_t tiles = 1;
  if (tokens > 8 && !format.is_generic) tiles = tokens > 32 && fits(ring(8)) ? 8 : 4;
  return {.token_tiles = tiles,
          .tokens = 8 * tiles,
          .rows = 32,
          .splits = 1,
          .resident = format.is_generic || tiles >= 4 ? 1u : 2u,
          .shared_bytes = ring(tiles)};
}

ColumnSplit PlanBuilder::column_split(const ProductTile& tile, const Grid& grid) {
  if (tile.splits == 1 || tile.ring_blocks > 0) {
    return {.partial = 0, .arrivals = 0, .parts = tile.splits};
  }
  const uint64_t tiles = uint64_t{grid.x} * grid.y;
  const uint64_t sums = tiles * tile.splits * tile.tokens * (tile.rows + 4);
  return {scratch(sums * sizeof(float)), arrivals(tiles), tile.splits};
}

std::string decode_instance(const char* kernel, WeightType type, const ProductTile& tile) {
  const bool has_ring = tile.ring_blocks > 0 && tile.token_tiles > 0;
  return std::string(kernel) + "<" + weight_format(type).name + ", " + half_of(type) + ", " +
         std::to_string(tile.token_tiles) + (tile.is_short ? ", 2>" : has_ring ? ", 0>" : ">");
}

std::string half_instance(const char* kernel, WeightType type) {
  return std::string(kernel) + "<" + weight_format(type).name + ", " + half_of(type) + ">";
}

void PlanBuilder::emit(const MatmulOp& op) { emit_product(op, nullptr); }

bool PlanBuilder::emit_norm_with_product(const RmsNormOp& op) {
  // All conditions are the same for every run: the order of sums must not depend on other rows.
  const auto* product = next_op<MatmulOp>();
  if (!product || product->x != op.out || op.residual != 0) return false;
  if (op.weight->cols != cols(op.x)) return false;
  // No other reader of the norm.
  if (!program_.is_read_once(op.out)) return false;
  // The result is planned to live after the norm's input, so it may have the same memory.
  if (!are_apart(program_, values_, product->out, op.x)) return false;
  const auto is_rounded = [](const DevicePart& part) { return part.type != WeightType::F32; };
  if (!std::ranges::all_of(cuda_weight(*product->weight).device_parts(), is_rounded)) return false;
  compute_with_next();
  emit_product(*product, &op);
  return true;
}

void PlanBuilder::emit_product(const MatmulOp& op, const RmsNormOp* norm) {
  const auto [all, decode, prefill] = row_groups(op.x);
  if (prefill.max_rows == 0 && emit_gated_product(op, norm, decode)) return;
  const std::vector<Product> products = products_of(op, norm);
  for (const Product& p : products) {
    if (p.type == WeightType::F32) emit_matvec(p, all);
  }
  if (decode.max_rows > 0) {
    begin_half_rows();
    for (const Product& p : products) {
      if (p.type != WeightType::F32) emit_decode_gemm(p, decode);
    }
  }
  if (prefill.max_rows > 0) {
    begin_half_rows();
    for (const Product& p : products) {
      if (p.type == WeightType::F32) continue;
      if (emit_library_product(p, prefill) || emit_wgmma_gemm(p, prefill)) continue;
      emit_gemm(p, prefill);
    }
  }
}

bool PlanBuilder::emit_gated_product(const MatmulOp& op, const RmsNormOp* norm,
                                     const RowGroup& rows) {
  const auto* glu = device_.device().fuses_operations() ? next_op<GluOp>() : nullptr;
  const uint32_t width = glu ? glu->width : 0;
  if (!glu || glu->x != op.out || cols(op.out) != 2 * width) return false;
  if (!program_.is_read_once(op.out)) return false;
  if (op.bias || op.residual || op.alpha != 1 || op.activation != FORGE_IDENTITY) return false;
  const CudaWeight& weight = cuda_weight(*op.weight);
  const DevicePart& part = weight.device_parts()[0];
  const WeightFormat format = weight_format(part.type);
  if (!weight.is_uniform() || format.is_generic || part.type == WeightType::F32) return false;
  const ProductTile tile = weight_tile(rows.max_rows, 2 * uint64_t{width}, weight.cols, format);
  // Multiprocessors without a block would cost more than the launch.
  if (tile.token_tiles > 1 && divide_up(2 * width, tile.rows) * 4 < 3 * gpu_.multiprocessors) {
    return false;
  }
  // The result is planned to live after x, so it may have the same memory.
  if (!are_apart(program_, values_, glu->out, norm ? norm->x : op.x)) return false;
  const WeightRows matrix =
      weight_rows(weight.matrix.at(part.offset), part.row_bytes, part.rows, weight.cols);
  begin_half_rows();
  const ProductOperands operands = {
      .out = value(glu->out),
      .x = decode_rows(part.type, product_rows(op, norm), matrix.cols, rows, tile),
      .weight = matrix,
      .set = rows.set};
  // A tile has rows of the gate and as many of `up`.
  const Grid grid = tile.grid(rows.max_rows, padded_to(width, tile.rows / 2) * 2);
  launch("gated_decode_gemm.cu", decode_instance("gated_decode_gemm", part.type, tile), grid, 256,
         tile.shared_bytes, operands, glu->unit, column_split(tile, grid));
  ++op_index_;
  return true;
}

ProductRows PlanBuilder::product_rows(const MatmulOp& op, const RmsNormOp* norm) const {
  if (!norm) return float_rows(value(op.x));
  ProductRows x = float_rows(value(norm->x));
  x.norm = {.weight = floats_of(norm->weight), .eps = norm->eps, .offset = norm->weight_offset};
  return x;
}

std::vector<PlanBuilder::Product> PlanBuilder::products_of(const MatmulOp& op,
                                                           const RmsNormOp* norm) const {
  const CudaWeight& weight = cuda_weight(*op.weight);
  std::vector<Product> products;
  for (const DevicePart& part : weight.device_parts()) {
    const DevicePointer skip = part.first_row * sizeof(float);
    const DevicePointer bias = floats_of(op.bias), residual = value(op.residual);
    products.push_back({.out = value(op.out) + skip,
                        .x = product_rows(op, norm),
                        .type = part.type,
                        .first_row = part.first_row,
                        .weight = weight_rows(weight.matrix.at(part.offset), part.row_bytes,
                                              part.rows, weight.cols),
                        .epilogue = {.bias = bias ? bias + skip : 0,
                                     .residual = residual ? residual + skip : 0,
                                     .alpha = op.alpha,
                                     .activation = op.activation,
                                     .out_stride = static_cast<uint32_t>(weight.rows)}});
  }
  return products;
}

WeightRows PlanBuilder::weight_rows(DevicePointer data, uint64_t row_bytes, uint64_t rows,
                                    uint64_t cols) const {
  return {.data = data,
          .codebooks = memory_.codebooks,
          .row_stride = row_bytes,
          .rows = static_cast<uint32_t>(rows),
          .cols = static_cast<uint32_t>(cols)};
}

uint32_t PlanBuilder::matvec_split(uint64_t rows, uint64_t cols) const {
  // Warps share rows only when there are not enough rows to keep the device busy.
  const uint64_t most = std::clamp<uint64_t>(cols / kSplitCols, 1, 8);
  uint32_t split = 1;
  while (2 * split <= most &&
         divide_up(rows, 8 / split * kWarpRows) < 4 * gpu_.multiprocessors) {
    split *= 2;
  }
  return split;
}

void PlanBuilder::emit_matvec(const Product& p, const RowGroup& rows) {
  const uint32_t tokens = matvec_tokens(rows.max_rows);
  const uint32_t split = matvec_split(p.weight.rows, p.weight.cols);
  const Grid grid{divide_up(p.weight.rows, 8 / split * kWarpRows),
                  divide_up(rows.max_rows, tokens)};
  launch("matvec.cu", "matvec<" + std::to_string(tokens) + ">", grid, 256, 0,
         ProductOperands{.out = p.out, .x = p.x, .weight = p.weight, .set = rows.set},
         p.epilogue, split);
}

void PlanBuilder::begin_half_rows() {
  scratch_used_ = 0;
  half_rows_.clear();
}

ProductRows PlanBuilder::half_rows(WeightType type, const ProductRows& x, uint32_t cols,
                                   const RowGroup& rows, uint32_t pieces, uint32_t chunk_cols) {
  const std::string element = half_of(type);
  const auto known = half_rows_.find({element, chunk_cols});
  if (known != half_rows_.end()) return known->second;
  const uint32_t padded = padded_cols(cols, chunk_cols);
  const uint64_t n_rows = uint64_t{rows.max_rows} * pieces;
  const ProductRows half = {.data = scratch(n_rows * padded * 2),
                            .scale = scratch(n_rows * sizeof(float)),
                            .norm = {},
                            .padded_cols = padded};
  launch("convert_rows.cu", "convert_rows<" + element + ">", {rows.max_rows, pieces}, 256, 0,
         cuda_args::ConvertRows<DevicePointer>{.out = half.data,
                                               .scale = half.scale,
                                               .x = x.data,
                                               .norm = x.norm,
                                               .set = rows.set,
                                               .cols = cols,
                                               .padded_cols = padded,
                                               .chunk_cols = chunk_cols});
  half_rows_.emplace(std::pair(element, chunk_cols), half);
  return half;
}

ProductRows PlanBuilder::decode_rows(WeightType type, const ProductRows& x, uint32_t cols,
                                     const RowGroup& rows, const ProductTile& tile,
                                     uint32_t pieces) {
  if (tile.token_tiles == 0) return x;
  return half_rows(type, x, cols, rows, pieces);
}

void PlanBuilder::emit_decode_gemm(const Product& p, const RowGroup& rows) {
  const ProductTile tile =
      product_tile(rows.max_rows, p.weight.rows, p.weight.cols, weight_format(p.type));
  const ProductOperands operands = {.out = p.out,
                                    .x = decode_rows(p.type, p.x, p.weight.cols, rows, tile),
                                    .weight = p.weight,
                                    .set = rows.set};
  const Grid grid = tile.grid(rows.max_rows, p.weight.rows);
  launch("decode_gemm.cu", decode_instance("decode_gemm", p.type, tile), grid, 256,
         tile.shared_bytes, operands, p.epilogue, column_split(tile, grid));
}

void PlanBuilder::emit_gemm(const Product& p, const RowGroup& rows) {
  const ProductOperands operands = {.out = p.out,
                                    .x = half_rows(p.type, p.x, p.weight.cols, rows),
                                    .weight = p.weight,
                                    .set = rows.set};
  const Grid grid{divide_up(p.weight.rows, kGemmRows), divide_up(rows.max_rows, kGemmTokens)};
  launch("gemm.cu", half_instance("gemm", p.type), grid, 256, kGemmShared, operands, p.epilogue);
}

}  // namespace forge::cuda
