#include <algorithm>
#include <limits>
#include <numeric>

#include "operations.h"

namespace {

struct Grouping {
  Buffer<MoeTile> tiles;
  Buffer<u32> n_tiles, pairs;
};

Buffer<float> route(Random& random, u32 tokens, u32 n_experts, u32 top_k, Buffer<float>& logits,
                    bool normalize) {
  for (float& x : logits) x = static_cast<float>(random.below(7)) * 0.5f;  // many ties
  Buffer<float> out(tokens * 2 * top_k);
  const Buffer<u32> n_tokens = {tokens};
  launch<MoeRoute>(tokens + 4,
                   {.out = out.data(),
                    .logits = logits.data(),
                    .bias = nullptr,
                    .expert_scales = nullptr,
                    .n_tokens = n_tokens.data()},
                   {.n_experts = n_experts,
                    .top_k = top_k,
                    .normalize = normalize,
                    .scale = 1.5f,
                    .scores = 0,
                    .n_groups = 1,
                    .top_groups = 1,
                    .threshold = 0,
                    .has_bias = 0,
                    .has_expert_scales = 0});
  return out;
}

// A choice among the best groups, biased or not, weighted by factors.
void check_group_route(u32 n_experts, u32 top_k, u32 n_groups, u32 top_groups, u32 scores,
                       bool has_bias = true) {
  Random random(n_experts + n_groups);
  const u32 tokens = 40, size = n_experts / n_groups;
  auto logits = random_floats(random, tokens * n_experts, 2);
  // Exponentials that F32 cannot represent.
  for (float& x : logits) x += scores == 0 ? 100 : 0;
  const auto bias = random_floats(random, n_experts), factors = random_floats(random, n_experts);
  Buffer<float> out(tokens * 2 * top_k);
  const Buffer<u32> n_tokens = {tokens};
  launch<MoeRoute>(tokens,
                   {.out = out.data(),
                    .logits = logits.data(),
                    .bias = has_bias ? bias.data() : nullptr,
                    .expert_scales = factors.data(),
                    .n_tokens = n_tokens.data()},
                   {.n_experts = n_experts,
                    .top_k = top_k,
                    .normalize = 1,
                    .scale = 2.5f,
                    .scores = scores,
                    .n_groups = n_groups,
                    .top_groups = top_groups,
                    .threshold = 0,
                    .has_bias = has_bias,
                    .has_expert_scales = 1});
  for (u32 t = 0; t < tokens; ++t) {
    std::vector<double> score(n_experts), worth(n_experts), of_group(n_groups);
    double total = 0;
    for (u32 e = 0; e < n_experts; ++e) total += std::exp(double(logits[t * n_experts + e]));
    for (u32 e = 0; e < n_experts; ++e) {
      const double logit = logits[t * n_experts + e];
      score[e] = scores == 1 ? 1 / (1 + std::exp(-logit)) : std::exp(logit) / total;
      worth[e] = has_bias ? score[e] + bias[e] : logit;
    }
    std::vector<u32> groups(n_groups);
    std::iota(groups.begin(), groups.end(), 0u);
    for (u32 g = 0; g < n_groups; ++g) {
      std::vector<double> members(worth.begin() + g * size, worth.begin() + (g + 1) * size);
      std::ranges::sort(members, std::greater<>());
      of_group[g] = has_bias && size > 1 ? members[0] + members[1] : members[0];
    }
    std::ranges::sort(groups, std::greater<>(), [&](u32 g) { return of_group[g]; });
    std::vector<u32> order;
    for (u32 k = 0; k < top_groups; ++k) {
      for (u32 i = 0; i < size; ++i) order.push_back(groups[k] * size + i);
    }
    std::ranges::sort(order, std::greater<>(), [&](u32 e) { return worth[e]; });
    double sum = 0;
    for (u32 k = 0; k < top_k; ++k) sum += score[order[k]];
    for (u32 k = 0; k < top_k; ++k) {
      const double weight = score[order[k]] / sum * 2.5 * factors[order[k]];
      EXPECT(out[t * 2 * top_k + k] == static_cast<float>(order[k]));
      EXPECT(std::abs(out[(t * 2 + 1) * top_k + k] - weight) < 1e-5);
    }
  }
}

// Scores of sparsemixer: a softmax among the experts that are left and near the best of them.
void check_sparse_route(u32 n_experts, float threshold) {
  Random random(n_experts);
  const u32 tokens = 9, top_k = 2;
  const auto logits = random_floats(random, tokens * n_experts, 2);
  Buffer<float> out(tokens * 2 * top_k);
  const Buffer<u32> n_tokens = {tokens};
  launch<MoeRoute>(tokens,
                   {.out = out.data(),
                    .logits = logits.data(),
                    .bias = nullptr,
                    .expert_scales = nullptr,
                    .n_tokens = n_tokens.data()},
                   {.n_experts = n_experts,
                    .top_k = top_k,
                    .normalize = 0,
                    .scale = 1.0f,
                    .scores = 2,
                    .n_groups = 1,
                    .top_groups = 1,
                    .threshold = threshold,
                    .has_bias = 0,
                    .has_expert_scales = 0});
  for (u32 t = 0; t < tokens; ++t) {
    std::vector<double> row(logits.data() + t * n_experts, logits.data() + (t + 1) * n_experts);
    for (u32 k = 0; k < top_k; ++k) {
      const auto best = std::ranges::max_element(row);
      double total = 0;
      for (const double logit : row) {
        const double below = (*best - logit) / std::max(std::abs(logit), *best);
        if (std::isfinite(logit) && !(below > threshold)) total += std::exp(logit - *best);
      }
      EXPECT(out[t * 2 * top_k + k] == static_cast<float>(best - row.begin()));
      EXPECT(std::abs(out[(t * 2 + 1) * top_k + k] - 1 / total) < 1e-5);
      *best = -std::numeric_limits<double>::infinity();
    }
  }
}

Grouping group(const Buffer<float>& routes, u32 tokens, u32 n_experts, u32 top_k, u32 tile_tokens) {
  const u32 pairs = tokens * top_k;
  Grouping g = {Buffer<MoeTile>(std::min(pairs, n_experts + pairs / tile_tokens)), Buffer<u32>(1),
                Buffer<u32>(pairs)};
  const Buffer<u32> n_tokens = {tokens};
  launch(PairGroups{.tiles = g.tiles.data(),
                  .n_tiles = g.n_tiles.data(),
                  .pairs = g.pairs.data(),
                  .route = routes.data(),
                  .n_tokens = n_tokens.data(),
                  .n_experts = n_experts,
                  .top_k = top_k,
                  .tile_tokens = tile_tokens});
  return g;
}

void check_route(u32 tokens, u32 n_experts, u32 top_k, bool normalize) {
  Random random(n_experts + top_k);
  Buffer<float> logits(tokens * n_experts);
  const auto out = route(random, tokens, n_experts, top_k, logits, normalize);
  for (u32 t = 0; t < tokens; ++t) {
    const float* row = logits.data() + t * n_experts;
    std::vector<u32> order(n_experts);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](u32 a, u32 b) { return row[a] > row[b]; });
    double chosen = 0, total = 0;
    for (u32 e = 0; e < n_experts; ++e) total += std::exp(row[e]);
    for (u32 k = 0; k < top_k; ++k) chosen += std::exp(row[order[k]]);
    for (u32 k = 0; k < top_k; ++k) {
      EXPECT(out[t * 2 * top_k + k] == static_cast<float>(order[k]));
      const double weight = 1.5 * std::exp(row[order[k]]) / (normalize ? chosen : total);
      EXPECT(std::abs(out[(t * 2 + 1) * top_k + k] - weight) < 1e-6);
    }
  }
}

void check_product(const WeightKind& kind, u32 tokens, u32 at_once, bool shared, u32 cols = 256) {
  Random random(kind.type + tokens);
  const u32 n_experts = 5, top_k = 2, rows = 7;
  const DeviceWeight weight = random_weight(random, kind, n_experts * rows, cols);
  const auto x = random_floats(random, tokens * (shared ? 1 : top_k) * cols);
  const auto bias = random_floats(random, n_experts * rows);
  Buffer<float> logits(tokens * n_experts), out(tokens * top_k * rows);
  const auto routes = route(random, tokens, n_experts, top_k, logits, true);
  const Grouping g = group(routes, tokens, n_experts, top_k, at_once);
  launch(GroupedMatvec{.out = out.data(),
                       .x = x.data(),
                       .weight = &weight,
                       .expert_rows = rows,
                       .top_k = top_k,
                       .x_shared = shared ? 1u : 0u,
                       .tiles = g.tiles.data(),
                       .n_tiles = g.n_tiles.data(),
                       .pairs = g.pairs.data(),
                       .max_tiles = static_cast<u32>(g.tiles.size()),
                       .route = routes.data(),
                       .bias = bias.data(),
                       .at_once = at_once,
                       .split = 2});
  for (u32 pair = 0; pair < tokens * top_k; ++pair) {
    const u32 t = pair / top_k, k = pair % top_k;
    const auto expert = static_cast<u32>(routes[t * 2 * top_k + k]);
    std::vector<double> expected;
    for (u32 r = expert * rows; r < (expert + 1) * rows; ++r) {
      expected.push_back(plain_dot(weight.row(r), x.data() + (shared ? t : pair) * cols, cols) +
                         bias[r]);
    }
    expect_near("grouped_matvec", out.data() + pair * rows, expected.data(), rows,
                1e-5 + 1.5 * std::sqrt(cols) * matvec_rounding(kind),
                1e-5 + matvec_rounding(kind));
  }
}

void check_random_route(Random& random) {
  const u32 n_experts = random.between(1, 200);
  check_route(random.between(1, 6), n_experts, random.between(1, std::min(n_experts, 12u)),
              random.below(2) == 0);
}

// Checks that every pair is in exactly one tile of its expert.
void check_cover(const Buffer<float>& routes, u32 tokens, u32 n_experts, u32 top_k) {
  const Grouping g = group(routes, tokens, n_experts, top_k, 4);
  std::vector<int> seen(tokens * top_k);
  EXPECT(g.n_tiles[0] <= g.tiles.size());
  for (u32 i = 0; i < g.n_tiles[0]; ++i) {
    const MoeTile tile = g.tiles[i];
    EXPECT(tile.count >= 1 && tile.count <= 4);
    for (u32 p = tile.first; p < tile.first + tile.count; ++p) {
      const u32 pair = g.pairs[p];
      EXPECT(pair < seen.size());
      EXPECT(routes[pair / top_k * 2 * top_k + pair % top_k] == static_cast<float>(tile.expert));
      ++seen[pair];
    }
  }
  EXPECT(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
}

}  // namespace

TEST_RANDOM(random_moe_route, check_random_route, 12)
TEST(moe_route_of_few_experts) { check_route(5, 4, 2, true); }
TEST(moe_route_of_all_experts) { check_route(2, 8, 8, false); }
TEST(moe_route_of_many_experts) { check_route(3, 131, 9, true); }
TEST(moe_route_to_more_experts_than_a_warp_has_lanes) { check_route(3, 131, 40, true); }
TEST(moe_route_by_biased_sigmoids) { check_group_route(160, 6, 1, 1, 1); }
TEST(moe_route_by_groups_of_biased_sigmoids) { check_group_route(64, 4, 8, 3, 1); }
TEST(moe_route_by_groups_of_biased_softmax) { check_group_route(96, 8, 32, 5, 0); }
TEST(moe_route_by_groups_of_one_expert) { check_group_route(24, 4, 24, 9, 1); }
TEST(moe_route_by_groups_without_bias) { check_group_route(64, 4, 8, 3, 0, false); }
TEST(moe_route_by_sparsemixer) { check_sparse_route(16, 0.02f); }
TEST(moe_route_by_sparsemixer_of_many_experts) { check_sparse_route(70, 0.5f); }
TEST(moe_route_of_nan_stays_in_bounds) {
  Buffer<float> logits(6), out(2 * 2);  // all logits are NaN
  const Buffer<u32> n_tokens = {1};
  launch<MoeRoute>(1,
                   {.out = out.data(),
                    .logits = logits.data(),
                    .bias = nullptr,
                    .expert_scales = nullptr,
                    .n_tokens = n_tokens.data()},
                   {.n_experts = 6,
                    .top_k = 2,
                    .normalize = 1,
                    .scale = 1.0f,
                    .scores = 0,
                    .n_groups = 1,
                    .top_groups = 1,
                    .threshold = 0,
                    .has_bias = 0,
                    .has_expert_scales = 0});
  EXPECT(out[0] >= 0 && out[0] < 6 && out[1] >= 0 && out[1] < 6 && out[0] != out[1]);
}
TEST(moe_group_covers_every_pair_once) {
  for (const u32 tokens : {1u, 33u}) {
    Random random(tokens);
    const u32 n_experts = 40, top_k = 3;
    Buffer<float> logits(tokens * n_experts);
    check_cover(route(random, tokens, n_experts, top_k, logits, true), tokens, n_experts, top_k);
  }
}
// Few and many pairs of the last expert, none of others.
TEST(moe_group_of_the_last_experts) {
  for (const u32 tokens : {1u, 3u, 9u, 33u}) {
    // Fewer and more experts than threads.
    for (const u32 n_experts : {7u, 300u}) {
      const u32 top_k = 2;
      Buffer<float> routes(tokens * 2 * top_k);
      for (u32 t = 0; t < tokens; ++t) {
        routes[t * 2 * top_k] = static_cast<float>(n_experts - 1);
        routes[t * 2 * top_k + 1] = static_cast<float>(t % 2 == 0 ? n_experts - 2 : 0);
      }
      check_cover(routes, tokens, n_experts, top_k);
    }
  }
}
TEST(head_groups_are_groups_of_all_heads_in_order) {
  for (const u32 tokens : {1u, 7u, 33u}) {
    const u32 n_heads = 12, tile_tokens = 8, head_tiles = (tokens + tile_tokens - 1) / tile_tokens;
    Buffer<MoeTile> tiles(n_heads * head_tiles);
    Buffer<u32> n_tiles(1), pairs(tokens * n_heads);
    const Buffer<u32> n_tokens = {tokens};
    launch<HeadGroups>(tokens + 2,
                       {.tiles = tiles.data(),
                        .n_tiles = n_tiles.data(),
                        .pairs = pairs.data(),
                        .n_tokens = n_tokens.data()},
                       {.n_heads = n_heads, .tile_tokens = tile_tokens});
    EXPECT(n_tiles[0] == n_heads * head_tiles);
    for (u32 i = 0, pair = 0; i < n_tiles[0]; ++i) {
      EXPECT(tiles[i].expert == i / head_tiles && tiles[i].first == pair);
      EXPECT(tiles[i].count == std::min(tile_tokens, tokens - i % head_tiles * tile_tokens));
      for (u32 p = pair; p < pair + tiles[i].count; ++p) {
        EXPECT(pairs[p] == p % tokens * n_heads + tiles[i].expert);
      }
      pair += tiles[i].count;
    }
  }
}
TEST(grouped_matvec_of_one_token) {
  for (const WeightKind& kind : fast_kinds) check_product(kind, 1, 1, true);
}
TEST(grouped_matvec_of_many_tokens) {
  for (const WeightKind& kind : fast_kinds) {
    for (const u32 at_once : {2u, 4u}) check_product(kind, 11, at_once, at_once == 4);
    // Kernels request some thousand columns before they multiply the first.
    check_product(kind, 11, 8, false, 5376);
  }
}
TEST(grouped_matvec_of_other_types) {
  std::string name;
  for (const u32 type : other_types)
    check_product(other_kind(type, name), 3, type % 2 != 0 ? 1 : 4, false);
}
TEST(moe_combine_with_and_without_residual) {
  Random random(3);
  const u32 tokens = 2, cols = 1029, top_k = 3;
  const auto x = random_floats(random, tokens * top_k * cols),
             routes = random_floats(random, tokens * 2 * top_k);
  const auto residual = random_floats(random, tokens * cols);
  const Buffer<u32> n_tokens = {tokens};
  for (const bool with_residual : {false, true}) {
    Buffer<float> out(tokens * cols);
    launch<MoeCombine>(3,
                       {.out = out.data(),
                        .x = x.data(),
                        .route = routes.data(),
                        .residual = with_residual ? residual.data() : nullptr,
                        .n_tokens = n_tokens.data()},
                       {.cols = cols, .top_k = top_k, .has_residual = with_residual});
    std::vector<double> expected;
    for (u32 t = 0; t < tokens; ++t) {
      for (u32 i = 0; i < cols; ++i) {
        double sum = with_residual ? residual[t * cols + i] : 0;
        for (u32 k = 0; k < top_k; ++k) {
          sum += double(routes[(t * 2 + 1) * top_k + k]) * x[(t * top_k + k) * cols + i];
        }
        expected.push_back(sum);
      }
    }
    expect_near("moe_combine", out, expected, 1e-6, 1e-6);
  }
}
