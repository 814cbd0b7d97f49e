// Experts of a list of tokens, whose pairs are numbered by the list.

#include <algorithm>
#include <numeric>

#include "../grouped_products.h"
#include "launch.h"

namespace {

constexpr u32 kTileTokens = 64;

Groups group(const Buffer<float>& routes, const RowSet& set, const GroupedShape& s,
             u32 tile_tokens, u32 warps) {
  Groups groups(s, s.tokens, tile_tokens);
  launch_moe_group(groups.operation(s, routes, nullptr, tile_tokens), set, warps);
  return groups;
}

// Tokens of a list in descending order, with gaps.
Buffer<u32> some_of(u32 tokens) {
  std::vector<u32> list;
  for (u32 t = tokens; t-- > 0;) {
    if (t % 3 != 1) list.push_back(t);
  }
  return Buffer<u32>(list);
}

}  // namespace

TEST(moe_group_is_a_stable_sort) {
  const GroupedShape s = {
      .tokens = 50, .n_experts = 37, .top_k = 3, .rows = 0, .cols = 0, .shared = true};
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
    const Groups g = group(routes, {count.data(), list.data()}, s, 4, warps);
    EXPECT(std::equal(sorted.begin(), sorted.end(), g.pairs.data()));
    u32 done = 0;
    for (u32 i = 0; i < g.n_tiles[0]; ++i) {
      const MoeTile tile = g.tiles[i];
      EXPECT(tile.first == done && tile.count >= 1 && tile.count <= 4);
      done += tile.count;
      EXPECT(expert(sorted[tile.first]) == tile.expert && expert(sorted[done - 1]) == tile.expert);
      // A tile is full unless it is the last of its expert.
      EXPECT(tile.count == 4 || done == n_pairs || expert(sorted[done]) != tile.expert);
    }
    EXPECT(done == n_pairs);
  }
}

// A token and experts whose rows begin beyond 4 GiB.
TEST(grouped_products_of_rows_beyond_4_gib) {
  Random random(3);
  const GroupedShape s = {
      .tokens = 2, .n_experts = 3, .top_k = 2, .rows = 3, .cols = 512, .shared = true};
  GroupedInputs in(random, half_kinds[0], s, s.n_experts);
  const u32 far_token = (u64(1) << 32) / s.cols / sizeof(float) * 5 + 1;
  const u64 far_rows = u64(far_token) + 1;
  const DeviceWeight weight = spread_rows(in.weight, u64(1) << 30);
  auto x = Buffer<float>::sparse(far_rows * s.cols);
  if (x.size() == 0) return;
  auto routes = Buffer<float>::sparse(far_rows * 2 * s.top_k);
  auto out = Buffer<float>::sparse(far_rows * s.top_k * s.rows);
  const Buffer<u32> count = {s.tokens}, list = {0, far_token};
  for (u32 t = 0; t < s.tokens; ++t) {
    std::copy_n(&in.x[t * s.cols], s.cols, &x[u64(list[t]) * s.cols]);
    std::copy_n(&in.routes[t * 2 * s.top_k], 2 * s.top_k, &routes[u64(list[t]) * 2 * s.top_k]);
  }
  const RowSet all = {count.data(), nullptr}, some = {count.data(), list.data()};
  for (const u32 at_once : {4u, 1u}) {
    const auto multiply = [&](Buffer<float>& to, const RowSet& set, const Buffer<float>& own_routes,
                              const float* own_x, const DeviceWeight& own_weight) {
      const Groups groups = group(own_routes, set, s, at_once, 1);
      GroupedMatvec op = in.product(to, groups, true);
      op.x = own_x;
      op.weight = &own_weight;
      op.at_once = at_once;
      op.route = own_routes.data();
      launch_grouped_matvec(op, set);
    };
    Buffer<float> expected(s.tokens * s.top_k * s.rows);
    multiply(expected, all, in.routes, in.x.data(), in.weight);
    multiply(out, some, routes, x.data(), weight);
    const u32 row = s.top_k * s.rows;
    for (u32 i = 0; i < s.tokens * row; ++i) {
      EXPECT(out[u64(list[i / row]) * row + i % row] == expected[i]);
    }
  }
}

// The products of a token have the same bits alone and among others; other rows are not written.
TEST(grouped_products_of_listed_tokens) {
  const GroupedShape s = {
      .tokens = 70, .n_experts = 4, .top_k = 2, .rows = 21, .cols = 256, .shared = true};
  const Buffer<u32> everyone = {s.tokens}, list = some_of(s.tokens),
                    count = {static_cast<u32>(list.size())};
  const RowSet all = {everyone.data(), nullptr}, some = {count.data(), list.data()};
  for (const bool shared : {true, false}) {
    for (const bool matvec : {true, false}) {
      Random random(2);
      GroupedShape own = s;
      own.shared = shared;
      const GroupedInputs in(random, half_kinds[matvec ? 2 : 0], own, 3);
      Buffer<float> expected(s.tokens * s.top_k * s.rows), out(s.tokens * s.top_k * s.rows);
      const auto multiply = [&](Buffer<float>& to, const RowSet& set) {
        const Groups groups = group(in.routes, set, own, matvec ? 4 : kTileTokens, 3);
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

// A weight of the gates and `up` of all experts, for all tokens of a step or a list of them.
TEST(gated_grouped_decode_gemm_is_grouped_decode_gemm_and_glu) {
  for (int k = 0; k < kHalfKinds; ++k) {
    Random random(static_cast<u64>(k));
    const u32 width = 19 + k, top_k = 3;
    const GroupedShape s = {.tokens = 5,
                            .n_experts = 7,
                            .top_k = top_k,
                            .rows = 2 * width,
                            .cols = k == 0 ? 84u : 512u,
                            .shared = k % 2 == 0};
    const GroupedInputs in(random, half_kinds[k], s, s.n_experts);
    const Buffer<u32> everyone = {s.tokens}, list = {4, 1, 0}, three = {3};
    for (const bool is_list : {false, true}) {
      const RowSet set = {is_list ? three.data() : everyone.data(),
                          is_list ? list.data() : nullptr};
      const Groups groups = group(in.routes, set, s, 1, 1);
      const bool has_bias = !is_list;
      const u32 unit = is_list ? 1 : 4;
      Buffer<float> product(s.tokens * top_k * s.rows), out(s.tokens * top_k * width);
      GroupedMatvec op = in.product(product, groups, has_bias);
      op.at_once = 1;
      launch_grouped_matvec(op, set);
      op.out = out.data();
      launch_gated_grouped(op, set, unit);
      Buffer<float> expected(out.size());
      launch<Glu>(s.tokens,
                  {.out = expected.data(), .x = product.data(), .n_rows = everyone.data()},
                  {.out_cols = top_k * width, .width = width, .unit = unit});
      for (u32 i = 0; i < out.size(); ++i) {
        const u32 token = i / (top_k * width);
        const bool is_listed = !is_list || token == 0 || token == 1 || token == 4;
        EXPECT(is_listed ? out[i] == expected[i] : std::isnan(out[i]));
      }
    }
  }
}
