// The mixture of experts.

#include <algorithm>

#include "plan_builder.h"
#include "product_shape.h"

namespace forge::metal {

using namespace metal_args;

void PlanBuilder::emit(const MoeRouteOp& op) {
  const Routing& routing = op.routing;
  launch("moe_route", "moe_route", {divide_up(max_rows(op.logits), 4)}, {128},
         {value(op.out), value(op.logits), floats_of(routing.bias),
          floats_of(routing.expert_scales), n_rows(op.logits)},
         MoeRouteArgs{.n_experts = cols(op.logits),
                      .top_k = routing.top_k,
                      .normalize = routing.normalize,
                      .scale = routing.scale,
                      .scores = routing.scores,
                      .n_groups = routing.n_groups,
                      .top_groups = routing.top_groups,
                      .has_bias = routing.bias != nullptr,
                      .has_expert_scales = routing.expert_scales != nullptr});
}

const PlanBuilder::RouteGroups& PlanBuilder::group_by_expert(ValueId route, uint32_t n_experts,
                                                             uint32_t tile_tokens) {
  if (groups_.route == route && groups_.tile_tokens == tile_tokens) return groups_;
  const uint32_t top_k = cols(route) / 2;
  const uint32_t pairs = max_rows(route) * top_k;
  const uint32_t max_tiles = std::min(pairs, n_experts + pairs / tile_tokens);
  begin_routes();
  groups_ = {.route = route,
             .tile_tokens = tile_tokens,
             .tiles = route_memory(max_tiles * sizeof(metal_args::MoeTile)),
             .n_tiles = route_memory(sizeof(uint32_t)),
             .pairs = route_memory(pairs * sizeof(uint32_t)),
             .max_tiles = max_tiles};
  launch("moe_group", "moe_group", {1}, {256, (2 * n_experts + 1) * sizeof(uint32_t)},
         {groups_.tiles, groups_.n_tiles, groups_.pairs, value(route), n_rows(route)},
         MoeGroupArgs{.n_experts = n_experts, .top_k = top_k, .tile_tokens = tile_tokens});
  return groups_;
}

void PlanBuilder::emit(const MoeMatmulOp& op) {
  const MetalWeight& weight = metal_weight(*op.weight);
  const WeightRows& rows = *weight.unified;
  const WeightFormat format = weight_format(rows.type);
  const uint32_t top_k = cols(op.route) / 2;
  // As many tokens a tile as an expert gets on average.
  const uint32_t average = divide_up(uint64_t{max_rows(op.x)} * top_k, op.n_experts);
  const uint64_t expert_rows = weight.rows / op.n_experts;
  const uint32_t tokens = matvec_shape(format, expert_rows, weight.cols, average).tokens;
  const RouteGroups& groups = group_by_expert(op.route, op.n_experts, tokens);
  // Beside the other experts of one token, so that a token's sums do not depend on how many there are.
  const MatvecShape shape = matvec_shape(format, expert_rows, weight.cols, average, top_k);
  launch("grouped_matvec", tokens_instance("grouped_matvec", format, tokens),
         {shape.row_groups, groups.max_tiles}, {256},
         {value(op.out), value(op.x), rows.place(), groups.tiles, groups.n_tiles, groups.pairs,
          floats_of(op.bias), memory_.codebooks},
         GroupedMatvecArgs{.row_stride = rows.row_bytes,
                           .expert_rows = static_cast<uint32_t>(expert_rows),
                           .cols = static_cast<uint32_t>(weight.cols),
                           .top_k = top_k,
                           .x_shared = cols(op.x) == weight.cols,
                           .has_bias = op.bias != nullptr,
                           .split = shape.split});
}

void PlanBuilder::emit(const MoeCombineOp& op) {
  const uint32_t n = cols(op.out);
  launch("moe_combine", "moe_combine", {divide_up(n, kRowElements), max_rows(op.out)}, {256},
         {value(op.out), value(op.x), value(op.route), value(op.residual), n_rows(op.x)},
         MoeCombineArgs{
             .cols = n, .top_k = cols(op.route) / 2, .has_residual = op.residual != 0});
}

}  // namespace forge::metal
