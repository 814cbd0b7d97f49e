// Products with weights.

#include <algorithm>
#include <bit>

#include "plan_builder.h"

namespace forge::cuda {

namespace {

constexpr uint32_t kMostMatvecTokens = 8;
// Steps recorded for more sequences than this decode on tensor cores. The maximum decides, not the
// number in a run: a token's sums must not depend on the batch.
constexpr uint32_t kMostMatvecSequences = 8;
// Fewest elements of a row per warp when warps of matvec share it.
constexpr uint32_t kSplitCols = 512;

const char* half_of(WeightType type) { return type == WeightType::BF16 ? "bf16" : "f16"; }

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
  const auto* glu = device_.device().fuses_operations() ? next_op<GluOp>() : nullptr;
  const uint32_t width = glu ? glu->width : 0;
  if (!glu || glu->x != op.out || cols(op.out) != 2 * width) return false;
  if (!program_.is_read_once(op.out)) return false;
  if (op.bias || op.residual || op.alpha != 1 || op.activation != FORGE_IDENTITY) return false;
  const CudaWeight& weight = cuda_weight(*op.weight);
  const DevicePart& part = weight.device_parts()[0];
  const WeightFormat format = weight_format(part.type);
  if (!weight.is_uniform() || format.is_generic) return false;
  if (part.type != WeightType::F32 && !decodes_by_matvec()) return false;
  // The result is planned to live after x, so it may have the same memory.
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

}  // namespace forge::cuda
