// Experts of some tokens only, whose pairs are those of the list.

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
      // A tile is full unless the expert has no more.
      EXPECT(tile.count == 4 || done == n_pairs || expert(sorted[done]) != tile.expert);
    }
    EXPECT(done == n_pairs);
  }
}

// A token's products are the same, to the bit, alone or among others, and others are left alone.
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
