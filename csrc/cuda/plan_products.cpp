// Products with weights.

#include <algorithm>
#include <bit>

#include "plan_builder.h"

namespace forge::cuda {

namespace {

constexpr uint32_t kMostMatvecTokens = 8;
// Steps of more sequences than this decode on tensor cores. It is the most that there can be which
// decides, not how many there are: a token's sums must not depend on that.
constexpr uint32_t kMostMatvecSequences = 8;
// The fewest elements of a row that a warp of matvec is worth splitting off for.
constexpr uint32_t kSplitCols = 512;
// From here on cuBLASLt is asked: for weights of 16 bits as they are, for others when unpacking
// them (2.5 bytes a weight through memory and cache) is little beside multiplying.
constexpr uint32_t kFewestLtRows = 65;
constexpr uint32_t kFewestUnpackedLtRows = 256;
// Unpacked weights of a tile: they stay in the second-level cache until they are multiplied.
constexpr uint64_t kTileBytes = 32u << 20;
constexpr uint32_t kTileRows = 128;
constexpr uint32_t kEpilogueCols = 1024;
constexpr uint32_t kDequantizeCols = 2048;

const char* half_of(WeightType type) { return type == WeightType::BF16 ? "bf16" : "f16"; }

bool is_half(WeightType type) { return type == WeightType::F16 || type == WeightType::BF16; }

// The largest power of two, up to 256, that divides an offset.
uint32_t alignment_of(uint64_t offset) {
  return static_cast<uint32_t>(1u << std::countr_zero(offset | 256));
}

}  // namespace

uint32_t tokens_together(uint32_t rows, const WeightFormat& format) {
  if (format.is_generic) return rows == 1 ? 1 : 4;
  return std::min(std::bit_ceil(rows), kMostMatvecTokens);
}

std::string half_instance(const char* kernel, WeightType type) {
  return std::string(kernel) + "<" + weight_format(type).name + ", " + half_of(type) + ">";
}

void PlanBuilder::emit(const MatmulOp& op) {
  const auto [all, decode, prefill] = row_groups(op.x);
  if (prefill.max_rows == 0 && emit_gated_product(op, decode)) return;
  const std::vector<Product> products = products_of(op);
  for (const Product& p : products) {
    if (p.part->type == WeightType::F32) emit_matvec(p, all);
  }
  if (decode.max_rows > 0) {
    begin_half_rows();
    for (const Product& p : products) {
      if (p.part->type == WeightType::F32) continue;
      if (decodes_by_matvec()) {
        emit_matvec(p, decode);
      } else {
        emit_decode_gemm(p, decode);
      }
    }
  }
  if (prefill.max_rows > 0) {
    begin_half_rows();
    for (const Product& p : products) {
      if (p.part->type == WeightType::F32) continue;
      if (!emit_library_product(p, prefill)) emit_gemm(p, prefill);
    }
  }
}

bool PlanBuilder::emit_gated_product(const MatmulOp& op, const RowGroup& rows) {
  const auto* glu = next_op<GluOp>();
  const uint32_t width = glu ? glu->width : 0;
  if (!glu || glu->x != op.out || cols(op.out) != 2 * width) return false;
  if (!program_.is_read_once(op.out)) return false;
  if (op.bias || op.residual || op.alpha != 1 || op.activation != FORGE_IDENTITY) return false;
  const CudaWeight& weight = cuda_weight(*op.weight);
  const DevicePart& part = weight.device_parts()[0];
  const WeightFormat format = weight_format(part.type);
  if (!weight.is_uniform() || format.is_generic) return false;
  if (part.type != WeightType::F32 && !decodes_by_matvec()) return false;
  // The result is planned to live after x has died, and may lie where it does.
  if (!are_apart(program_, values_, glu->out, op.x)) return false;
  const uint32_t tokens = tokens_together(rows.max_rows, format);
  const uint32_t split = matvec_split(part.rows, weight.cols, format);
  launch("gated_matvec.cu", tokens_instance("gated_matvec", format, tokens),
         {divide_up(width, 8 / split), divide_up(rows.max_rows, tokens)}, 256, 0, value(glu->out),
         value(op.x), weight.matrix.at(part.offset), part.row_bytes, width,
         static_cast<uint32_t>(weight.cols), rows.set, glu->unit, split, memory_.codebooks);
  ++op_index_;
  return true;
}

bool PlanBuilder::decodes_by_matvec() const {
  return program_.limits.max_sequences <= kMostMatvecSequences;
}

std::vector<PlanBuilder::Product> PlanBuilder::products_of(const MatmulOp& op) const {
  const CudaWeight& weight = cuda_weight(*op.weight);
  std::vector<Product> products;
  for (const DevicePart& part : weight.device_parts()) {
    const DevicePointer skip = part.first_row * sizeof(float);
    const DevicePointer bias = floats_of(op.bias), residual = value(op.residual);
    products.push_back({.out = value(op.out) + skip,
                        .x = value(op.x),
                        .weight = &weight,
                        .part = &part,
                        .epilogue = {.bias = bias ? bias + skip : 0,
                                     .residual = residual ? residual + skip : 0,
                                     .alpha = op.alpha,
                                     .activation = op.activation}});
  }
  return products;
}

uint32_t PlanBuilder::matvec_split(uint64_t rows, uint64_t cols, const WeightFormat& format) const {
  // Warps share rows only when there are not enough rows to keep the device busy.
  const uint64_t most = std::clamp<uint64_t>(cols / kSplitCols, 1, 8);
  uint32_t split = 1;
  while (2 * split <= most &&
         divide_up(rows, 8 / split * warp_rows(format)) < 4 * gpu_.multiprocessors) {
    split *= 2;
  }
  return split;
}

void PlanBuilder::emit_matvec(const Product& p, const RowGroup& rows) {
  const WeightFormat format = weight_format(p.part->type);
  const uint32_t tokens = tokens_together(rows.max_rows, format);
  const uint32_t split = matvec_split(p.part->rows, p.weight->cols, format);
  const Grid grid{divide_up(p.part->rows, 8 / split * warp_rows(format)),
                  divide_up(rows.max_rows, tokens)};
  launch("matvec.cu", tokens_instance("matvec", format, tokens), grid, 256, 0, p.out, p.x,
         p.data(), p.part->row_bytes, p.n_rows(), p.n_cols(), p.out_stride(), rows.set, p.epilogue,
         split, memory_.codebooks);
}

void PlanBuilder::begin_half_rows() {
  scratch_used_ = 0;
  half_rows_.clear();
}

const PlanBuilder::HalfRows& PlanBuilder::half_rows(WeightType type, DevicePointer x,
                                                    uint32_t cols, const RowGroup& rows,
                                                    uint32_t pieces) {
  const std::string element = half_of(type);
  const auto known = half_rows_.find(element);
  if (known != half_rows_.end()) return known->second;
  const uint32_t padded = padded_cols(cols);
  const uint64_t n_rows = uint64_t{rows.max_rows} * pieces;
  const HalfRows half{scratch(n_rows * padded * 2), scratch(n_rows * sizeof(float))};
  launch("convert_rows.cu", "convert_rows<" + element + ">", {rows.max_rows, pieces}, 256, 0,
         half.x, half.scale, x, rows.set, cols, padded);
  return half_rows_.emplace(element, half).first->second;
}

void PlanBuilder::emit_decode_gemm(const Product& p, const RowGroup& rows) {
  const HalfRows& half = half_rows(p.part->type, p.x, p.n_cols(), rows);
  const WeightFormat format = weight_format(p.part->type);
  // Tiles of 8 tokens and 16 rows. Decoded blocks fill the registers.
  const bool is_small = rows.max_rows <= 8 || format.is_generic;
  const uint32_t token_tiles = is_small ? 1 : 4, row_tiles = is_small ? 1 : 2;
  const Grid grid{divide_up(rows.max_rows, 8 * token_tiles),
                  divide_up(p.part->rows, 16 * row_tiles)};
  launch("decode_gemm.cu",
         "decode_gemm<" + format.name + ", " + half_of(p.part->type) + ", " +
             std::to_string(token_tiles) + ", " + std::to_string(row_tiles) + ">",
         grid, 256, 0, p.out, half.x, half.scale, p.data(), p.part->row_bytes, p.n_rows(),
         p.n_cols(), padded_cols(p.weight->cols), p.out_stride(), rows.set, p.epilogue,
         memory_.codebooks);
}

void PlanBuilder::emit_gemm(const Product& p, const RowGroup& rows) {
  const HalfRows& half = half_rows(p.part->type, p.x, p.n_cols(), rows);
  const Grid grid{divide_up(p.part->rows, kGemmRows), divide_up(rows.max_rows, kGemmTokens)};
  launch("gemm.cu", half_instance("gemm", p.part->type), grid, 256, kGemmShared, p.out, half.x,
         half.scale, p.data(), p.part->row_bytes, p.n_rows(), p.n_cols(),
         padded_cols(p.weight->cols), p.out_stride(), rows.set, p.epilogue, memory_.codebooks);
}

bool PlanBuilder::emit_library_product(const Product& p, const RowGroup& rows) {
  const bool unpacked = !is_half(p.part->type);
  if (rows.max_rows < (unpacked ? kFewestUnpackedLtRows : kFewestLtRows)) return false;
  CublasLt& library = device_.cublaslt();
  if (!library.problem().empty()) return false;

  const uint32_t padded = padded_cols(p.weight->cols);
  const uint64_t wanted = std::max<uint64_t>(kTileBytes / (padded * 2ull) / kTileRows, 1);
  const uint64_t tile_rows =
      unpacked ? std::min(p.part->rows, std::min<uint64_t>(wanted * kTileRows, kMostGridRows))
               : p.part->rows;
  // A list of rows spreads what the library leaves in a row.
  const bool in_place = rows.kind == RowKind::all;
  const uint64_t stride = unpacked ? padded : p.part->row_bytes / 2;
  LtShape shape{.is_bf16 = p.part->type == WeightType::BF16,
                .tokens = rows.max_rows,
                .rows = 0,
                .cols = static_cast<uint32_t>(stride),
                .x_stride = padded,
                .weight_stride = stride,
                .out_stride = in_place ? p.out_stride() : p.part->rows,
                .weight_alignment = 256,
                .out_alignment =
                    in_place ? alignment_of(p.part->first_row * sizeof(float)) : 256};
  std::vector<const LtProduct*> tiles;
  uint64_t workspace_bytes = 0;
  for (uint64_t first = 0; first < p.part->rows; first += tile_rows) {
    shape.rows = static_cast<uint32_t>(std::min(tile_rows, p.part->rows - first));
    tiles.push_back(library.product(shape));
    if (!tiles.back()) return false;
    workspace_bytes = std::max(workspace_bytes, CublasLt::workspace_bytes(*tiles.back()));
  }

  const HalfRows& half = half_rows(p.part->type, p.x, p.n_cols(), rows);
  const uint64_t kept = scratch_used_;
  const DevicePointer workspace = scratch(workspace_bytes);
  const DevicePointer unpacked_rows = scratch(unpacked ? tile_rows * padded * 2 : 0);
  const DevicePointer product =
      in_place ? p.out : scratch(uint64_t{rows.max_rows} * p.part->rows * sizeof(float));
  for (size_t i = 0; i < tiles.size(); ++i) {
    const uint64_t first = i * tile_rows;
    const auto n = static_cast<uint32_t>(std::min(tile_rows, p.part->rows - first));
    if (unpacked) {
      const std::string instance = "dequantize<" + weight_format(p.part->type).name + ", f16>";
      launch("dequantize.cu", instance, {divide_up(padded, kDequantizeCols), n}, 128, 0,
             unpacked_rows, p.data(), p.part->row_bytes, static_cast<uint32_t>(first), n,
             p.n_cols(), padded, memory_.codebooks);
    }
    plan_.entries.emplace_back(std::in_place_type<LtCall>, library, *tiles[i],
                               product + first * sizeof(float), half.x,
                               unpacked ? unpacked_rows : p.data(), workspace);
  }
  const Epilogue& e = p.epilogue;
  const bool is_bare = !e.bias && !e.residual && e.alpha == 1 && e.activation == FORGE_IDENTITY;
  // F16 may have been scaled.
  if (!is_bare || !in_place || !shape.is_bf16) {
    launch("epilogue.cu", "epilogue", {divide_up(p.part->rows, kEpilogueCols), rows.max_rows}, 256,
           0, p.out, product, half.scale, rows.set, p.n_rows(),
           static_cast<uint32_t>(shape.out_stride), p.out_stride(), e);
  }
  scratch_used_ = kept;
  return true;
}

}  // namespace forge::cuda
