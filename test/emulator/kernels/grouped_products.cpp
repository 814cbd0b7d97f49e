#include "grouped_products.h"

#include <algorithm>
#include <numeric>

namespace kernel_test {

Buffer<float> random_routes(Random& random, const GroupedShape& s, u32 n_used) {
  Buffer<float> routes(s.tokens * 2 * s.top_k);
  std::vector<u32> experts(n_used);
  std::iota(experts.begin(), experts.end(), 0u);
  for (u32 t = 0; t < s.tokens; ++t) {
    for (u32 k = 0; k < s.top_k; ++k) {
      std::swap(experts[k], experts[random.between(k, n_used - 1)]);
      routes[t * 2 * s.top_k + k] = static_cast<float>(experts[k]);
    }
  }
  return routes;
}

u32 expert_of(const Buffer<float>& routes, u32 token, u32 k, u32 top_k) {
  return static_cast<u32>(routes[token * 2 * top_k + k]);
}

Groups::Groups(const GroupedShape& s, u32 max_tokens, u32 tile_tokens)
    : tiles(std::min(max_tokens * s.top_k, s.n_experts + max_tokens * s.top_k / tile_tokens)),
      n_tiles(1),
      pairs(max_tokens * s.top_k) {}

PairGroups Groups::operation(const GroupedShape& s, const Buffer<float>& routes,
                             const u32* n_tokens, u32 tile_tokens) {
  return {.tiles = tiles.data(),
          .n_tiles = n_tiles.data(),
          .pairs = pairs.data(),
          .route = routes.data(),
          .n_tokens = n_tokens,
          .n_experts = s.n_experts,
          .top_k = s.top_k,
          .tile_tokens = tile_tokens};
}

GroupedInputs::GroupedInputs(Random& random, const WeightKind& kind, const GroupedShape& s,
                             u32 n_used)
    : shape(s),
      weight(random_weight(random, kind, s.n_experts * s.rows, s.cols)),
      x(random_floats(random, u64(s.tokens) * (s.shared ? 1 : s.top_k) * s.cols)),
      bias(random_floats(random, s.n_experts * s.rows)),
      routes(random_routes(random, s, n_used)) {}

GroupedMatvec GroupedInputs::product(Buffer<float>& out, const Groups& groups,
                                     bool has_bias) const {
  return {.out = out.data(),
          .x = x.data(),
          .weight = &weight,
          .expert_rows = shape.rows,
          .top_k = shape.top_k,
          .x_shared = shape.shared ? 1u : 0u,
          .tiles = groups.tiles.data(),
          .n_tiles = groups.n_tiles.data(),
          .pairs = groups.pairs.data(),
          .max_tiles = static_cast<u32>(groups.tiles.size()),
          .route = routes.data(),
          .bias = has_bias ? bias.data() : nullptr,
          .at_once = 4,
          .split = 2};
}

}  // namespace kernel_test
