// The mixture of experts.

#include <algorithm>

#include "plan_builder.h"

namespace forge::cuda {

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
  // Of one token's experts: how a row is divided must not depend on how many tokens there are.
  const uint32_t split = matvec_split(expert_rows * top_k, weight.cols, format);
  const Grid grid{divide_up(expert_rows, 8 / split * warp_rows(format)), groups.max_tiles};
  launch("grouped_matvec.cu", tokens_instance("grouped_matvec", format, tokens), grid, 256, 0,
         value(op.out), value(op.x), static_cast<uint32_t>(cols(op.x) == weight.cols),
         data.data, data.row_bytes, static_cast<uint32_t>(expert_rows),
         static_cast<uint32_t>(weight.cols), top_k, groups.tiles, groups.n_tiles, groups.pairs,
         floats_of(op.bias), split, memory_.codebooks);
}

void PlanBuilder::emit(const MoeCombineOp& op) {
  const uint32_t n = cols(op.out);
  launch("moe_combine.cu", "moe_combine", {divide_up(n, 1024), max_rows(op.out)}, 256, 0,
         value(op.out), value(op.x), value(op.route), value(op.residual), n_rows(op.x), n,
         cols(op.route) / 2);
}

}  // namespace forge::cuda
