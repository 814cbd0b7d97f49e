// Products with weights.

#include <algorithm>
#include <bit>

#include "plan_builder.h"

namespace forge::cuda {

namespace {

constexpr uint32_t kMostMatvecTokens = 8;
// Most parts of the columns of a weight (kMostParts of kernels/cuda/tile_ring.cuh).
constexpr uint32_t kMostParts = 8;
// Fewest elements of a row per warp when warps of matvec share it.
constexpr uint32_t kSplitCols = 512;
// Bytes of the rings of a block's warps (kernels/cuda/weight_ring.cuh).
constexpr uint32_t kWarpRings = 8 * 9216;
// Counters of rows that blocks convert together (SharedConversion), before those of tiles.
constexpr uint32_t kConversionCounters = 3;
// Stages of a block's ring (kernels/cuda/tile_ring.cuh).
constexpr uint32_t kFewestStages = 3, kMostStages = 10;
// Shared memory of a block besides its dynamic one: arrays of fixed size, and 1 KB that the device
// keeps for itself.
constexpr uint32_t kStaticShared = 2048;

// The columns of a stage of a ring, and the bytes of a row of it (WeightSpans of
// kernels/cuda/weight_spans.cuh).
struct StageSize {
  uint32_t cols, row_bytes;
};

StageSize stage_size(WeightType type) {
  switch (type) {
    case WeightType::Q8_0:
      return {128, 128 + 8};
    case WeightType::FP8:
      return {128, 128 + 16};
    case WeightType::Q4_0:
      return {128, 64 + 8};
    case WeightType::Q4_K:
      return {128, 64 + 16};
    case WeightType::Q6_K:
      return {128, 64 + 32 + 8 + 4};
    default:
      return {64, 128};
  }
}

// Shared memory in which convert_gated_rows keeps a row in F32, padded for any order of columns.
uint32_t gated_row_bytes(uint32_t cols) {
  return static_cast<uint32_t>(padded_to(cols, 128) * sizeof(float));
}

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

// Parts of the columns of a weight, whose sums decode_gemm adds up last, so that a weight of few
// rows fills the device: each multiprocessor has one and a half tiles of 64 rows, or 32 of file
// blocks, or each slice of a row just one span of columns (kernels/cuda/decode_gemm.cuh). They do
// not depend on the number of tokens, because the order of sums does not.
static uint32_t column_parts(uint64_t rows, uint64_t cols, const WeightFormat& format,
                             uint32_t multiprocessors) {
  const uint64_t tiles = divide_up(rows, format.is_generic ? 32 : 64);
  uint32_t parts = 1;
  while (parts < kMostParts && cols >= 2 * parts * kSplitCols &&
         2 * tiles * parts < 3 * multiprocessors) {
    parts *= 2;
  }
  return parts;
}

// The tiles of decode_gemm, by tokens. File blocks, whose decoded weights fill the registers, have
// tiles of 32 rows and at most eight tokens.
//
//   1      x is rounded by the kernel itself, which saves a launch. Each warp has a ring of
//          weights, for 16 or 32 rows at a time, so that no warp waits for another
//   else   a ring of the block, in tiles of 8, 32 or 64 tokens. The blocks of the first product of
//          x convert its rows together while weights arrive
ProductTile PlanBuilder::weight_tile(uint32_t tokens, uint64_t rows, uint64_t cols,
                                     WeightType type) const {
  const WeightFormat format = weight_format(type);
  const uint32_t parts = column_parts(rows, cols, format, gpu_.multiprocessors);
  if (const auto tile = ring_tile(tokens, cols, parts, format)) return *tile;
  if (!format.is_generic) return block_ring_tile(tokens, rows, parts, type);
  // The largest part of a row.
  ProductTile tile = expert_tile(tokens, divide_up(divide_up(cols, 128), parts) * 128, format);
  tile.parts = parts;
  // The sums of four slices may take more than x.
  tile.shared_bytes = std::max<uint32_t>(tile.shared_bytes, 16 * tile.tokens * (tile.rows + 4));
  return tile;
}

ProductTile PlanBuilder::block_ring_tile(uint32_t tokens, uint64_t rows, uint32_t parts,
                                         WeightType type) const {
  const uint32_t token_tiles = tokens <= 8 ? 1 : tokens <= 32 ? 4 : 8;
  ProductTile tile = {.token_tiles = token_tiles,
                      .tokens = 8 * token_tiles,
                      .rows = 0,
                      .parts = parts,
                      .shared_bytes = 0,
                      .threads = token_tiles == 8 ? 256u : 512u,
                      .place = ProductTile::Place::block_ring};
  tile.blocks = std::max(1u, gpu_.multiprocessors / divide_up(tokens, tile.tokens));
  const StageSize size = stage_size(type);
  const uint32_t room = gpu_.max_shared_bytes - kStaticShared;
  uint64_t least = 0;
  // The tile with the fewest bytes of stages for the block with the most pieces. Tokens count half,
  // since L2 delivers them.
  const uint32_t warp_rows = token_tiles == 8 ? 32 : 16, warps = tile.threads / 32;
  const uint32_t x = tile.tokens * size.cols * 2;
  for (uint32_t n = warp_rows; n <= 256; n += warp_rows) {
    const uint32_t sums = n * tile.tokens * sizeof(float), weights = n * size.row_bytes;
    const auto stages = [&](uint32_t slices) {
      return sums > room ? 0 : std::min((room - sums) / (slices * (weights + x)), kMostStages);
    };
    // Warps without rows would leave the others too little time.
    uint32_t slices = 4;
    while (slices > 1 && (slices * n > warps * warp_rows || stages(slices) < kFewestStages)) {
      slices /= 2;
    }
    if (stages(slices) < kFewestStages) break;
    const uint64_t most_pieces = divide_up(divide_up(rows, n) * parts, tile.blocks);
    const uint64_t cost = most_pieces * (2 * weights + x);
    if (least != 0 && cost > least) continue;
    least = cost;
    tile.rows = n;
    tile.slices = slices;
    tile.stages = stages(slices);
    tile.shared_bytes = sums + tile.stages * slices * (weights + x);
  }
  return tile;
}

// True if a block may have this much dynamic shared memory, or blocks as much together.
bool PlanBuilder::fits(uint64_t shared_bytes, uint32_t blocks) const {
  return blocks * (shared_bytes + kStaticShared) <= gpu_.max_shared_bytes + 1024;
}

std::optional<ProductTile> PlanBuilder::ring_tile(uint32_t tokens, uint64_t cols, uint32_t parts,
                                                  const WeightFormat& format) const {
  if (tokens > 1 || format.is_generic) return std::nullopt;
  const uint32_t rows = parts == 1 ? 32 : 16;
  const uint64_t sums = 2 * 4 * parts * rows * sizeof(float), x = padded_to(cols, 128) * 2;
  const uint64_t shared_bytes = kWarpRings + sums + x;
  if (!fits(shared_bytes)) return std::nullopt;
  return ProductTile{.token_tiles = 0,
                     .tokens = 1,
                     .rows = rows,
                     .parts = parts,
                     .shared_bytes = static_cast<uint32_t>(shared_bytes),
                     .place = ProductTile::Place::warp_rings,
                     .blocks = (fits(shared_bytes, 2) ? 2 : 1) * gpu_.multiprocessors};
}

ProductTile PlanBuilder::expert_tile(uint32_t tokens, uint64_t cols,
                                     const WeightFormat& format) const {
  const uint64_t row_bytes = padded_to(cols, 128) * 2;
  if (const auto tile = ring_tile(tokens, cols, 1, format)) return *tile;
  const bool is_one = tokens <= 1 && format.is_generic && fits(row_bytes);
  // A row, or rings of spans of eight; the sums may take more.
  const uint64_t x = is_one ? row_bytes : 8 * 256 * 4 * 3;
  return {.token_tiles = is_one ? 0u : 1u,
          .tokens = is_one ? 1u : 8u,
          .rows = 32,
          .parts = 1,
          .shared_bytes = static_cast<uint32_t>(std::max<uint64_t>(x, 1024))};
}

Tiling PlanBuilder::tiling(const ProductTile& tile, const Grid& grid, uint64_t n_rows) {
  Tiling tiling = {.partial = 0,
                   .arrivals = 0,
                   .parts = tile.parts,
                   .rows = tile.rows,
                   .slices = tile.slices,
                   .stages = tile.stages};
  if (tile.parts == 1 || tile.place == ProductTile::Place::warp_rings) return tiling;
  const uint64_t tiles = uint64_t{grid.x} * divide_up(n_rows, tile.rows);
  const uint32_t rows = tile.rows + (tile.place == ProductTile::Place::registers ? 4 : 0);
  tiling.partial = scratch(tiles * tile.parts * tile.tokens * rows * sizeof(float));
  tiling.arrivals = arrivals(kConversionCounters + tiles) + kConversionCounters * sizeof(uint32_t);
  return tiling;
}

std::string decode_instance(const char* kernel, WeightType type, const ProductTile& tile) {
  return std::string(kernel) + "<" + weight_format(type).name + ", " + half_of(type) + ", " +
         std::to_string(tile.token_tiles) + ">";
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
  const auto is_rounded = [](const DevicePart& part) { return part.type != WeightType::F32; };
  if (!std::ranges::all_of(cuda_weight(*product->weight).device_parts(), is_rounded)) return false;
  compute_with_next();
  emit_product(*product, &op);
  return true;
}

void PlanBuilder::emit(const GluOp& op) {
  if (!emit_unit_with_product(op)) SharedOperations::emit(op);
}

bool PlanBuilder::emit_unit_with_product(const GluOp& op) {
  const auto* product = device_.device().fuses_operations() ? next_op<MatmulOp>() : nullptr;
  if (!product || product->x != op.out || !program_.is_read_once(op.out)) return false;
  // Rows of several groups have their gates apart.
  if (cols(op.out) != op.width || row_groups(op.out).decode.max_rows > 0) return false;
  if (!fits(gated_row_bytes(op.width), 2)) return false;
  const auto& parts = cuda_weight(*product->weight).device_parts();
  const auto is_rounded = [](const DevicePart& part) { return part.type != WeightType::F32; };
  if (!std::ranges::all_of(parts, is_rounded)) return false;
  // Parts may need different conversions, of which the later follow the products of the earlier.
  // The result is planned to live after the unit's input, so it may have the same memory.
  if (parts.size() > 1 && !are_apart(program_, values_, product->out, op.x)) return false;
  compute_with_next();
  emit_product(*product, nullptr, &op);
  return true;
}

void PlanBuilder::emit_product(const MatmulOp& op, const RmsNormOp* norm, const GluOp* unit) {
  const auto [all, decode, prefill] = row_groups(op.x);
  if (prefill.max_rows == 0 && emit_gated_product(op, norm, decode)) return;
  const std::vector<Product> products = products_of(op, norm, unit);
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
  const ProductTile tile =
      weight_tile(rows.max_rows, 2 * uint64_t{width}, weight.cols, part.type);
  const WeightRows matrix =
      weight_rows(weight.matrix.at(part.offset), part.row_bytes, part.rows, weight.cols);
  begin_half_rows();
  const auto [x, conversion] =
      decode_rows(part.type, product_rows(op, norm), matrix.cols, rows, tile);
  const ProductOperands operands = {
      .out = value(glu->out), .x = x, .weight = matrix, .set = rows.set};
  // Each 16 rows have eight of the gate and as many of `up`.
  const uint64_t n_rows = padded_to(width, 8) * 2;
  const Grid grid = tile.grid(rows.max_rows, n_rows);
  launch("gated_decode_gemm.cu", decode_instance("gated_decode_gemm", part.type, tile), grid,
         tile.threads, tile.shared_bytes, operands, glu->unit, tiling(tile, grid, n_rows),
         conversion);
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
                                                           const RmsNormOp* norm,
                                                           const GluOp* unit) const {
  const CudaWeight& weight = cuda_weight(*op.weight);
  std::vector<Product> products;
  for (const DevicePart& part : weight.device_parts()) {
    const DevicePointer skip = part.first_row * sizeof(float);
    const DevicePointer bias = floats_of(op.bias), residual = value(op.residual);
    products.push_back({.out = value(op.out) + skip,
                        .x = unit ? float_rows(value(unit->x)) : product_rows(op, norm),
                        .unit = unit,
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

std::optional<ConvertRows> PlanBuilder::place_half_rows(WeightType type, const ProductRows& x,
                                                        uint32_t cols, const RowGroup& rows,
                                                        uint32_t pieces, uint32_t chunk_cols) {
  const auto [place, is_new] = half_rows_.try_emplace({half_of(type), chunk_cols});
  ProductRows& half = place->second;
  if (!is_new) return std::nullopt;
  const uint32_t padded = padded_cols(cols, chunk_cols);
  const uint64_t n_rows = uint64_t{rows.max_rows} * pieces;
  half = {.data = scratch(n_rows * padded * 2),
          .scale = scratch(n_rows * sizeof(float)),
          .norm = {},
          .padded_cols = padded};
  return ConvertRows{.out = half.data,
                     .scale = half.scale,
                     .x = x.data,
                     .norm = x.norm,
                     .set = rows.set,
                     .cols = cols,
                     .padded_cols = padded,
                     .chunk_cols = chunk_cols};
}

ProductRows PlanBuilder::half_rows(WeightType type, const ProductRows& x, uint32_t cols,
                                   const RowGroup& rows, uint32_t pieces, uint32_t chunk_cols,
                                   const GluOp* unit) {
  const std::string element = half_of(type);
  if (const auto rows_to_convert = place_half_rows(type, x, cols, rows, pieces, chunk_cols)) {
    if (unit) {
      launch("convert_rows.cu", "convert_gated_rows<" + element + ">", {rows.max_rows}, 256,
             gated_row_bytes(cols), *rows_to_convert, unit->unit);
    } else {
      launch("convert_rows.cu", "convert_rows<" + element + ">", {rows.max_rows, pieces}, 256, 0,
             *rows_to_convert);
    }
  }
  return half_rows_.at({element, chunk_cols});
}

ProductRows PlanBuilder::half_rows(const Product& p, const RowGroup& rows, uint32_t chunk_cols) {
  return half_rows(p.type, p.x, p.weight.cols, rows, 1, chunk_cols, p.unit);
}

PlanBuilder::DecodeRows PlanBuilder::decode_rows(WeightType type, const ProductRows& x,
                                                 uint32_t cols, const RowGroup& rows,
                                                 const ProductTile& tile) {
  if (tile.token_tiles == 0) return {x, {}};
  if (tile.place != ProductTile::Place::block_ring) return {half_rows(type, x, cols, rows), {}};
  SharedConversion conversion = {};
  if (const auto rows_to_convert = place_half_rows(type, x, cols, rows)) {
    conversion = {.rows = *rows_to_convert, .counters = arrivals(kConversionCounters)};
  }
  return {half_rows_.at({half_of(type), 0}), conversion};
}

void PlanBuilder::emit_decode_gemm(const Product& p, const RowGroup& rows) {
  const ProductTile tile = weight_tile(rows.max_rows, p.weight.rows, p.weight.cols, p.type);
  const auto [x, conversion] = decode_rows(p.type, p.x, p.weight.cols, rows, tile);
  const ProductOperands operands = {.out = p.out, .x = x, .weight = p.weight, .set = rows.set};
  const Grid grid = tile.grid(rows.max_rows, p.weight.rows);
  launch("decode_gemm.cu", decode_instance("decode_gemm", p.type, tile), grid, tile.threads,
         tile.shared_bytes, operands, p.epilogue, tiling(tile, grid, p.weight.rows), conversion);
}

void PlanBuilder::emit_gemm(const Product& p, const RowGroup& rows) {
  const ProductOperands operands = {.out = p.out,
                                    .x = half_rows(p, rows),
                                    .weight = p.weight,
                                    .set = rows.set};
  const Grid grid{divide_up(p.weight.rows, kGemmRows), divide_up(rows.max_rows, kGemmTokens)};
  launch("gemm.cu", half_instance("gemm", p.type), grid, 256, kGemmShared, operands, p.epilogue);
}

}  // namespace forge::cuda
