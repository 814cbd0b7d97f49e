// Products with weights, and the mixture of experts.

#include <algorithm>
#include <bit>

#include "plan_builder.h"

namespace forge::cuda {

namespace {

// Up to here a product is bound by reading the weight, which matvec does once for 8 rows.
constexpr uint32_t kMostMatvecRows = 16;
constexpr uint32_t kMostMatvecTokens = 8;
// Rows and columns of a gemm block, and the multiple of columns it wants.
constexpr uint32_t kGemmRows = 128;
constexpr uint32_t kGemmTokens = 64;
constexpr uint32_t kGemmCols = 64;
constexpr uint32_t kGemmShared = 55296;
// The fewest elements of a row that a warp of matvec is worth splitting off for.
constexpr uint32_t kSplitCols = 512;

// Tokens that one launch computes together, of `rows` in all.
uint32_t tokens_together(uint32_t rows, const WeightFormat& format) {
  if (format.is_generic) return rows == 1 ? 1 : 4;
  return std::min(std::bit_ceil(rows), kMostMatvecTokens);
}

std::string tokens_instance(const char* kernel, const WeightFormat& format, uint32_t tokens) {
  return std::string(kernel) + "<" + format.name + ", " + std::to_string(tokens) + ">";
}

}  // namespace

void PlanBuilder::emit(const MatmulOp& op) {
  const CudaWeight& weight = cuda_weight(*op.weight);
  for (const DevicePart& part : weight.device_parts()) {
    const DevicePointer skip = part.first_row * sizeof(float);
    const DevicePointer bias = floats_of(op.bias), residual = value(op.residual);
    const Product product{.out = value(op.out) + skip,
                          .x = value(op.x),
                          .weight = &weight,
                          .part = &part,
                          .out_stride = weight.rows,
                          .n_rows = n_rows(op.x),
                          .max_rows = max_rows(op.x),
                          .epilogue = {.bias = bias ? bias + skip : 0,
                                       .residual = residual ? residual + skip : 0,
                                       .alpha = op.alpha,
                                       .activation = op.activation}};
    if (product.max_rows <= kMostMatvecRows || part.type == WeightType::F32) {
      emit_matvec(product);
    } else {
      emit_gemm(product);
    }
  }
}

uint32_t PlanBuilder::matvec_split(uint64_t rows, uint64_t cols, const WeightFormat& format) const {
  // Warps share rows only when there are not enough rows to keep the device busy.
  const uint64_t most = std::clamp<uint64_t>(cols / kSplitCols, 1, 8);
  uint32_t split = 1;
  while (2 * split <= most &&
         divide_up(rows, 8 / split * format.warp_rows) < 4 * device_.multiprocessors) {
    split *= 2;
  }
  return split;
}

void PlanBuilder::emit_matvec(const Product& p) {
  const WeightFormat format = weight_format(p.part->type);
  const uint32_t tokens = tokens_together(p.max_rows, format);
  const uint32_t split = matvec_split(p.part->rows, p.weight->cols, format);
  const Grid grid{divide_up(p.part->rows, 8 / split * format.warp_rows),
                  divide_up(p.max_rows, tokens)};
  launch("matvec.cu", tokens_instance("matvec", format, tokens), grid, 256, 0, p.out, p.x,
         p.weight->matrix.at(p.part->offset), p.part->row_bytes,
         static_cast<uint32_t>(p.part->rows), static_cast<uint32_t>(p.weight->cols),
         static_cast<uint32_t>(p.out_stride), p.n_rows, p.epilogue, split, memory_.codebooks);
}

void PlanBuilder::emit_gemm(const Product& p) {
  const WeightFormat format = weight_format(p.part->type);
  const char* element = p.part->type == WeightType::BF16 ? "bf16" : "f16";
  const auto n = static_cast<uint32_t>(p.weight->cols);
  const uint32_t padded = divide_up(n, kGemmCols) * kGemmCols;
  scratch_used_ = 0;  // the parts of a weight follow one another
  const DevicePointer x = scratch(uint64_t{p.max_rows} * padded * 2);
  const DevicePointer x_scale = scratch(p.max_rows * sizeof(float));
  launch("convert_rows.cu", std::string("convert_rows<") + element + ">", {p.max_rows}, 256, 0, x,
         x_scale, p.x, p.n_rows, n, padded);
  const Grid grid{divide_up(p.part->rows, kGemmRows), divide_up(p.max_rows, kGemmTokens)};
  launch("gemm.cu", "gemm<" + format.name + ", " + element + ">", grid, 256, kGemmShared, p.out, x,
         x_scale, p.weight->matrix.at(p.part->offset), p.part->row_bytes,
         static_cast<uint32_t>(p.part->rows), n, padded, static_cast<uint32_t>(p.out_stride),
         p.n_rows, p.epilogue, memory_.codebooks);
}

void PlanBuilder::emit(const MoeRouteOp& op) {
  launch("moe_route.cu", "moe_route", {divide_up(max_rows(op.logits), 4)}, 128, 0, value(op.out),
         value(op.logits), n_rows(op.logits), cols(op.logits), op.top_k,
         static_cast<uint32_t>(op.normalize), op.scale);
}

const PlanBuilder::RouteGroups& PlanBuilder::group_by_expert(ValueId route, uint32_t n_experts,
                                                             uint32_t tile_tokens) {
  if (groups_.route == route && groups_.tile_tokens == tile_tokens) return groups_;
  const uint32_t top_k = cols(route) / 2;
  const uint32_t pairs = max_rows(route) * top_k;
  const uint32_t max_tiles = std::min(pairs, n_experts + pairs / tile_tokens);
  const DevicePointer base = memory_.workspace.routes;
  const uint64_t tiles_bytes = (max_tiles * sizeof(MoeTile) + 255) / 256 * 256;
  groups_ = {.route = route,
             .tile_tokens = tile_tokens,
             .tiles = base + 256,
             .n_tiles = base,
             .pairs = base + 256 + tiles_bytes,
             .max_tiles = max_tiles};
  needed_.routes = std::max<uint64_t>(needed_.routes, 256 + tiles_bytes + pairs * sizeof(uint32_t));
  launch("moe_group.cu", "moe_group", {1}, 1024, (2 * n_experts + 1) * 4, groups_.tiles,
         groups_.n_tiles, groups_.pairs, value(route), n_rows(route), n_experts, top_k,
         tile_tokens);
  return groups_;
}

void PlanBuilder::emit(const MoeMatmulOp& op) {
  const CudaWeight& weight = cuda_weight(*op.weight);
  const UnifiedWeight data = unified(weight);
  const WeightFormat format = weight_format(data.type);
  const uint32_t top_k = cols(op.route) / 2;
  // As many tokens a tile as an expert gets on average.
  const uint32_t average = divide_up(uint64_t{max_rows(op.x)} * top_k, op.n_experts);
  const uint32_t tokens = tokens_together(average, format);
  const RouteGroups& groups = group_by_expert(op.route, op.n_experts, tokens);
  const uint64_t expert_rows = weight.rows / op.n_experts;
  const uint32_t split = matvec_split(expert_rows * groups.max_tiles, weight.cols, format);
  const Grid grid{divide_up(expert_rows, 8 / split * format.warp_rows), groups.max_tiles};
  launch("grouped_matvec.cu", tokens_instance("grouped_matvec", format, tokens), grid, 256, 0,
         value(op.out), value(op.x), static_cast<uint32_t>(cols(op.x) == weight.cols),
         data.data, data.row_bytes, static_cast<uint32_t>(expert_rows), static_cast<uint32_t>(weight.cols), top_k,
         groups.tiles, groups.n_tiles, groups.pairs, floats_of(op.bias), split, memory_.codebooks);
}

void PlanBuilder::emit(const MoeCombineOp& op) {
  const uint32_t n = cols(op.out);
  launch("moe_combine.cu", "moe_combine", {divide_up(n, 1024), max_rows(op.out)}, 256, 0,
         value(op.out), value(op.x), value(op.route), value(op.residual), n_rows(op.x), n,
         cols(op.route) / 2);
}

}  // namespace forge::cuda
