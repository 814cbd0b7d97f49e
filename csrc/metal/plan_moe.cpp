// The mixture of experts, and products for each head, which are products with experts that every
// token uses.

#include <algorithm>

#include "plan_builder.h"
#include "product_shape.h"

namespace forge::metal {

using namespace metal_args;

const PlanBuilder::RouteGroups& PlanBuilder::groups_of(const GroupedProduct& p,
                                                       const RowGroup& rows,
                                                       uint32_t tile_tokens) {
  const RoutedPairs routed{p.route, p.n_experts, p.top_k, is_of_tokens(p.x)};
  return group_by_expert(routed, rows, tile_tokens, [&](const RouteGroups& groups) {
    emit_groups(groups, rows, p.route, p.n_experts, p.top_k,
                {256, (2 * p.n_experts + 1) * sizeof(uint32_t)});
  });
}

void PlanBuilder::emit(const MoeMatmulOp& op) {
  emit(GroupedProduct{.out = op.out,
                      .x = op.x,
                      .route = op.route,
                      .weight = metal_weight(*op.weight),
                      .bias = op.bias,
                      .n_experts = op.n_experts,
                      .top_k = cols(op.route) / 2});
}

void PlanBuilder::emit(const HeadMatmulOp& op) {
  emit(GroupedProduct{.out = op.out,
                      .x = op.x,
                      .route = 0,
                      .weight = metal_weight(*op.weight),
                      .bias = nullptr,
                      .n_experts = op.n_heads,
                      .top_k = op.n_heads});
}

void PlanBuilder::emit(const GroupedProduct& p) {
  const auto [all, decode, prefill] = row_groups(p.x);
  if (decode.max_rows > 0) emit_grouped_matvec(p, decode);
  if (prefill.max_rows > 0) emit_grouped_gemm(p, prefill);
}

GroupedMatvecArgs PlanBuilder::grouped_args(const GroupedProduct& p) const {
  return {.row_stride = p.weight.unified->row_bytes,
          .expert_rows = static_cast<uint32_t>(p.weight.rows / p.n_experts),
          .cols = static_cast<uint32_t>(p.weight.cols),
          .top_k = p.top_k,
          .x_shared = cols(p.x) == p.weight.cols,
          .has_bias = p.bias != nullptr,
          .split = 1};
}

void PlanBuilder::emit_grouped_matvec(const GroupedProduct& p, const RowGroup& group) {
  const WeightRows& rows = *p.weight.unified;
  const WeightFormat format = weight_format(rows.type);
  GroupedMatvecArgs args = grouped_args(p);
  // Tile size: the average number of tokens of an expert.
  const uint32_t average = divide_up(uint64_t{group.max_rows} * args.top_k, p.n_experts);
  // Counts the threadgroups of one token's experts only: a token's sums must not depend on the
  // number of tokens.
  const MatvecShape shape =
      matvec_shape(format, args.expert_rows, args.cols, average, args.top_k);
  args.split = shape.split;
  const RouteGroups& groups = groups_of(p, group, shape.tokens);
  launch("grouped_matvec", tokens_instance("grouped_matvec", format, shape.tokens),
         {shape.row_groups, groups.max_tiles}, {256},
         {value(p.out), value(p.x), rows.place(), groups.tiles, groups.n_tiles, groups.pairs,
          floats_of(p.bias), memory_.codebooks},
         args);
}

void PlanBuilder::emit_grouped_gemm(const GroupedProduct& p, const RowGroup& group) {
  const WeightRows& rows = *p.weight.unified;
  const GroupedMatvecArgs args = grouped_args(p);
  GemmRows x{value(p.x), {}};
  if (is_rounded(rows.type)) x = round_rows(x.x, args.cols, args.x_shared ? 1 : p.top_k, group);
  const RouteGroups& groups = groups_of(p, group, kGemmTokens);
  launch("grouped_gemm", "grouped_gemm<" + weight_format(rows.type).name + ">",
         {divide_up(args.expert_rows, kGemmRows), groups.max_tiles}, {128},
         {value(p.out), x.x, x.factors, rows.place(), groups.tiles, groups.n_tiles, groups.pairs,
          floats_of(p.bias), memory_.codebooks},
         args);
}

}  // namespace forge::metal
