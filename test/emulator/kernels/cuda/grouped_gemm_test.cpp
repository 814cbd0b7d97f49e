// Products with experts on tensor cores, and those of some tokens only.

#include <algorithm>
#include <numeric>

#include "../../../../csrc/common/quant/weight_type.h"
#include "../gemm_check.h"
#include "launch.h"

namespace {

constexpr u32 kTileTokens = 64;

struct Shape {
  u32 tokens, n_experts, top_k, rows, cols;
  bool shared;
};

// [tokens, 2 top_k] as moe_route writes them: different experts of the first `n_used`.
Buffer<float> random_routes(Random& random, const Shape& s, u32 n_used) {
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

struct Groups {
  Buffer<MoeTile> tiles;
  Buffer<u32> n_tiles, pairs;
};

Groups group(const Buffer<float>& routes, const RowSet& set, u32 max_tokens, const Shape& s,
             u32 tile_tokens, u32 warps) {
  const u32 pairs = max_tokens * s.top_k;
  Groups g = {Buffer<MoeTile>(std::min(pairs, s.n_experts + pairs / tile_tokens)), Buffer<u32>(1),
              Buffer<u32>(pairs)};
  launch_moe_group({.tiles = g.tiles.data(),
                    .n_tiles = g.n_tiles.data(),
                    .pairs = g.pairs.data(),
                    .route = routes.data(),
                    .n_tokens = nullptr,
                    .n_experts = s.n_experts,
                    .top_k = s.top_k,
                    .tile_tokens = tile_tokens},
                   set, warps);
  return g;
}

// A weight with what is multiplied with it.
struct Inputs {
  Shape shape;
  DeviceWeight weight;
  Buffer<float> x, bias, routes;

  Inputs(Random& random, const WeightKind& kind, const Shape& s, u32 n_used)
      : shape(s),
        weight(random_weight(random, kind, s.n_experts * s.rows, s.cols)),
        x(random_floats(random, u64(s.tokens) * (s.shared ? 1 : s.top_k) * s.cols)),
        bias(random_floats(random, s.n_experts * s.rows)),
        routes(random_routes(random, s, n_used)) {}

  GroupedMatvec product(Buffer<float>& out, const Groups& groups, bool has_bias) const {
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
            .bias = has_bias ? bias.data() : nullptr,
            .at_once = 4,
            .split = 2};
  }
};

void check(const WeightKind& kind, const Shape& s, u32 n_used, bool has_bias = true) {
  Random random(kind.type + s.rows + s.tokens);
  Inputs in(random, kind, s, n_used);
  // The last row of x is beyond the range of F16.
  for (u32 i = 1; i <= s.cols; ++i) in.x[in.x.size() - i] *= 1e6f;
  const Buffer<u32> count = {s.tokens};
  const RowSet all = {count.data(), nullptr};
  const Groups groups = group(in.routes, all, s.tokens + 3, s, kTileTokens, 4);
  Buffer<float> out(s.tokens * s.top_k * s.rows);
  launch_grouped_gemm(in.product(out, groups, has_bias), all, s.tokens + 3);
  const double rounding = kind.type == 30 ? 5e-3 : 6e-4;
  for (u32 pair = 0; pair < s.tokens * s.top_k; ++pair) {
    const u32 first = expert_of(in.routes, pair / s.top_k, pair % s.top_k, s.top_k) * s.rows;
    const u32 row = s.shared ? pair / s.top_k : pair;
    const double size = (row + 1) * u64{s.cols} == in.x.size() ? 1e6 : 1;
    std::vector<double> expected;
    for (u32 r = first; r < first + s.rows; ++r) {
      expected.push_back(plain_dot(in.weight.row(r), in.x.data() + u64(row) * s.cols, s.cols) +
                         (has_bias ? in.bias[r] : 0));
    }
    expect_near("grouped_gemm", out.data() + u64(pair) * s.rows, expected.data(), s.rows,
                12 * rounding * size, rounding);
  }
}

void check_random(Random& random) {
  std::string name;
  const WeightKind kind = random.below(2) == 0 ? half_kinds[random.below(kHalfKinds)]
                                               : other_kind(random.one_of(other_types), name);
  const u32 unit = forge::find_weight_type(kind.type)->block_elements;
  const u32 n_experts = random.between(1, 12), n_used = random.between(1, n_experts);
  check(kind,
        {.tokens = random.between(1, 40),
         .n_experts = n_experts,
         .top_k = random.between(1, std::min(n_used, 4u)),
         .rows = random.between(1, 140),
         .cols = unit * random.between(1, 1 + 200 / unit),
         .shared = random.below(2) == 0},
        n_used, random.below(2) == 0);
}

// Tokens of a list, last first, in numbers that leave some out.
Buffer<u32> some_of(u32 tokens) {
  std::vector<u32> list;
  for (u32 t = tokens; t-- > 0;) {
    if (t % 3 != 1) list.push_back(t);
  }
  return Buffer<u32>(list);
}

}  // namespace

TEST(moe_group_is_a_stable_sort) {
  const Shape s = {.tokens = 50, .n_experts = 37, .top_k = 3, .rows = 0, .cols = 0, .shared = true};
  Random random(1);
  const auto routes = random_routes(random, s, 20);
  const Buffer<u32> list = some_of(s.tokens), count = {static_cast<u32>(list.size())};
  const u32 n_pairs = count[0] * s.top_k;
  const auto expert = [&](u32 pair) {
    return expert_of(routes, list[pair / s.top_k], pair % s.top_k, s.top_k);
  };
  std::vector<u32> sorted(n_pairs);
  std::iota(sorted.begin(), sorted.end(), 0u);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](u32 a, u32 b) { return expert(a) < expert(b); });
  for (const u32 warps : {1u, 2u, 7u, 32u}) {
    const Groups g = group(routes, {count.data(), list.data()}, s.tokens, s, 4, warps);
    EXPECT(std::equal(sorted.begin(), sorted.end(), g.pairs.data()));
    u32 done = 0;
    for (u32 i = 0; i < g.n_tiles[0]; ++i) {
      const MoeTile tile = g.tiles[i];
      EXPECT(tile.first == done && tile.count >= 1 && tile.count <= 4);
      done += tile.count;
      EXPECT(expert(sorted[tile.first]) == tile.expert && expert(sorted[done - 1]) == tile.expert);
      // A tile is full unless the expert has no more.
      EXPECT(tile.count == 4 || done == n_pairs || expert(sorted[done]) != tile.expert);
    }
    EXPECT(done == n_pairs);
  }
}
TEST_RANDOM(random_grouped_gemm, check_random, 6)
TEST(grouped_gemm_of_every_fast_format) {
  for (int k = 0; k < kHalfKinds; ++k) {
    check(half_kinds[k], {33, 5, 2, 131, 256, k % 2 == 0}, 4);
  }
}
TEST(grouped_gemm_of_other_types) {
  std::string name;
  for (const u32 type : other_types) {
    check(other_kind(type, name), {5, 3, 2, 9, 256, type % 2 == 0}, 3);
  }
}
TEST(grouped_gemm_of_odd_columns) {
  check(half_kinds[0], {4, 3, 2, 7, 77, true}, 3);
  check(half_kinds[1], {1, 9, 4, 130, 172, false}, 9);
}
// More than a tile for one of them, none for others.
TEST(grouped_gemm_of_one_expert_for_all) { check(half_kinds[3], {150, 6, 1, 20, 64, true}, 1); }

// A token's products are the same, to the bit, alone or among others, and others are left alone.
TEST(grouped_products_of_listed_tokens) {
  const Shape s = {.tokens = 70, .n_experts = 4, .top_k = 2, .rows = 21, .cols = 256, .shared = true};
  const Buffer<u32> everyone = {s.tokens}, list = some_of(s.tokens),
                    count = {static_cast<u32>(list.size())};
  const RowSet all = {everyone.data(), nullptr}, some = {count.data(), list.data()};
  for (const bool shared : {true, false}) {
    for (const bool matvec : {true, false}) {
      Random random(2);
      Shape own = s;
      own.shared = shared;
      const Inputs in(random, half_kinds[matvec ? 2 : 0], own, 3);
      Buffer<float> expected(s.tokens * s.top_k * s.rows), out(s.tokens * s.top_k * s.rows);
      const auto multiply = [&](Buffer<float>& to, const RowSet& set) {
        const Groups groups = group(in.routes, set, s.tokens, own, matvec ? 4 : kTileTokens, 3);
        const GroupedMatvec op = in.product(to, groups, true);
        matvec ? launch_grouped_matvec(op, set) : launch_grouped_gemm(op, set, s.tokens);
      };
      multiply(expected, all);
      multiply(out, some);
      for (u32 i = 0; i < out.size(); ++i) {
        const bool is_listed = i / s.rows / s.top_k % 3 != 1;
        EXPECT(is_listed ? out[i] == expected[i] : std::isnan(out[i]));
      }
    }
  }
}
