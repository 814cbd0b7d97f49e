// The mixture of experts, and products for each head, which are products with experts that every
// token uses.

#include <algorithm>

#include "plan_builder.h"

namespace forge::cuda {

namespace {

// Maximum counts of all warps of moe_group. With sums of as many experts as the recorder
// takes, 4096, that is 64 KiB of shared memory, which every device from SM80 on gives a block.
constexpr uint32_t kCounts = 8192;

}  // namespace

const PlanBuilder::RouteGroups& PlanBuilder::groups_of(const GroupedProduct& p,
                                                       const RowGroup& rows,
                                                       uint32_t tile_tokens) {
  const RoutedPairs routed{p.route, p.n_experts, p.top_k, is_of_tokens(p.x)};
  return group_by_expert(routed, rows, tile_tokens, [&](const RouteGroups& groups) {
    require(groups.max_tiles <= kMostGridRows, p.name, ": ", rows.max_rows, " tokens with ",
            p.top_k, p.route == 0 ? " heads" : " experts",
            " each are too many for one step of the CUDA device");
    // Each warp counts for itself, in shared memory.
    const uint32_t useful = std::min(kCounts / p.n_experts, divide_up(groups.max_pairs, 32));
    const uint32_t warps = std::clamp(useful, 1u, 32u);
    const uint64_t shared_bytes = ((warps + 2) * p.n_experts + 2) * sizeof(uint32_t);
    emit_groups(groups, rows, p.route, p.n_experts, p.top_k, {32 * warps, shared_bytes});
  });
}

void PlanBuilder::emit(const MoeMatmulOp& op) {
  const GroupedProduct product{.name = "moe_matmul",
                               .out = op.out,
                               .x = op.x,
                               .route = op.route,
                               .weight = cuda_weight(*op.weight),
                               .bias = floats_of(op.bias),
                               .n_experts = op.n_experts,
                               .top_k = cols(op.route) / 2};
  if (!emit_gated_grouped_product(op, product)) emit(product);
}

void PlanBuilder::emit(const HeadMatmulOp& op) {
  emit(GroupedProduct{.name = "head_matmul",
                      .out = op.out,
                      .x = op.x,
                      .route = 0,
                      .weight = cuda_weight(*op.weight),
                      .bias = 0,
                      .n_experts = op.n_heads,
                      .top_k = op.n_heads});
}

void PlanBuilder::emit(const GroupedProduct& p) {
  const auto [all, decode, prefill] = row_groups(p.x);
  if (unified(p.weight).type == WeightType::F32) return emit_grouped_matvec(p, all);
  if (decode.max_rows > 0) emit_grouped_decode_gemm(p, decode);
  if (prefill.max_rows == 0 || emit_wgmma_grouped_gemm(p, prefill)) return;
  emit_grouped_gemm(p, prefill);
}

ProductOperands PlanBuilder::grouped_operands(const GroupedProduct& p, const RowGroup& rows,
                                              const ProductRows& x) const {
  const UnifiedWeight data = unified(p.weight);
  const uint64_t expert_rows = p.weight.rows / p.n_experts;
  return {.out = value(p.out),
          .x = x,
          .weight = weight_rows(data.data, data.row_bytes, expert_rows, p.weight.cols),
          .set = rows.set};
}

ExpertPairs PlanBuilder::expert_pairs(const GroupedProduct& p, const RouteGroups& groups) const {
  return {.tiles = groups.tiles,
          .n_tiles = groups.n_tiles,
          .pairs = groups.pairs,
          .route = value(p.route),
          .bias = p.bias,
          .top_k = p.top_k,
          .x_shared = pieces_of(p) == 1};
}

void PlanBuilder::emit_grouped_matvec(const GroupedProduct& p, const RowGroup& rows) {
  // Tile size: the average number of tokens of an expert.
  const uint32_t tokens =
      matvec_tokens(divide_up(uint64_t{rows.max_rows} * p.top_k, p.n_experts));
  const RouteGroups& groups = groups_of(p, rows, tokens);
  const ProductOperands operands = grouped_operands(p, rows, float_rows(value(p.x)));
  // Rows of one token's experts: the split of a row must not depend on the number of tokens.
  const uint32_t split = matvec_split(uint64_t{operands.weight.rows} * p.top_k, p.weight.cols);
  const Grid grid{divide_up(operands.weight.rows, 8 / split * kWarpRows), groups.max_tiles};
  launch("grouped_matvec.cu", "grouped_matvec<" + std::to_string(tokens) + ">", grid, 256, 0,
         operands, expert_pairs(p, groups), split);
}

void PlanBuilder::emit_grouped_decode_gemm(const GroupedProduct& p, const RowGroup& rows) {
  const WeightType type = unified(p.weight).type;
  const auto n_cols = static_cast<uint32_t>(p.weight.cols);
  // Experts rarely have more than eight tokens of a decode step.
  const ProductTile tile = expert_tile(std::min(rows.max_rows, 8u), n_cols, weight_format(type));
  // The pairs of one token need no sorting: each has a block of its own.
  const bool is_sorted = tile.token_tiles > 0;
  begin_half_rows();
  const ProductRows all = float_rows(value(p.x));
  const ProductRows x = is_sorted ? half_rows(type, all, n_cols, rows, pieces_of(p)) : all;
  const RouteGroups groups = is_sorted ? groups_of(p, rows, tile.tokens) : RouteGroups{};
  const ProductOperands operands = grouped_operands(p, rows, x);
  const Grid grid{divide_up(operands.weight.rows, tile.rows),
                  is_sorted ? groups.max_tiles : rows.max_rows * p.top_k};
  launch("grouped_decode_gemm.cu", decode_instance("grouped_decode_gemm", type, tile), grid, 256,
         tile.shared_bytes, operands, expert_pairs(p, groups));
}

bool PlanBuilder::emit_gated_grouped_product(const MoeMatmulOp& op, const GroupedProduct& p) {
  const auto [all, decode, prefill] = row_groups(op.x);
  const auto* glu = device_.device().fuses_operations() ? next_op<GluOp>() : nullptr;
  if (!glu || glu->x != op.out || !program_.is_read_once(op.out)) return false;
  const WeightType type = unified(p.weight).type;
  const WeightFormat format = weight_format(type);
  if (prefill.max_rows > 0 || type == WeightType::F32 || format.is_generic) return false;
  const auto n_cols = static_cast<uint32_t>(p.weight.cols);
  const ProductTile tile = expert_tile(decode.max_rows, n_cols, format);
  if (tile.token_tiles > 0 || p.weight.rows != 2 * uint64_t{glu->width} * p.n_experts) return false;
  ProductOperands operands = grouped_operands(p, decode, float_rows(value(p.x)));
  operands.out = value(glu->out);
  const Grid grid{divide_up(glu->width, tile.rows / 2), decode.max_rows * p.top_k};
  launch("grouped_decode_gemm.cu", half_instance("gated_grouped_decode_gemm", type), grid, 256,
         tile.shared_bytes, operands, expert_pairs(p, {}), glu->unit);
  ++op_index_;
  return true;
}

void PlanBuilder::emit_grouped_gemm(const GroupedProduct& p, const RowGroup& rows) {
  const WeightType type = unified(p.weight).type;
  const auto n_cols = static_cast<uint32_t>(p.weight.cols);
  begin_half_rows();
  const ProductRows x = half_rows(type, float_rows(value(p.x)), n_cols, rows, pieces_of(p));
  const RouteGroups& groups = groups_of(p, rows, kGemmTokens);
  const ProductOperands operands = grouped_operands(p, rows, x);
  const Grid grid{divide_up(operands.weight.rows, kGemmRows), groups.max_tiles};
  launch("grouped_gemm.cu", half_instance("grouped_gemm", type), grid, 256, kGemmShared, operands,
         expert_pairs(p, groups));
}

}  // namespace forge::cuda
