// Products of many tokens with experts, on matrix units.

#include <algorithm>

#include "../../../csrc/common/quant/weight_type.h"
#include "grouped_products.h"

namespace kernel_test {

void check_grouped_gemm(const WeightKind& kind, const GroupedShape& s, u32 n_used, bool has_bias,
                        u32 tile_tokens, void (*multiply)(const GroupedGemm&)) {
  Random random(kind.type + s.rows + s.tokens);
  GroupedInputs in(random, kind, s, n_used);
  // The last row of x is beyond the range of F16.
  for (u32 i = 1; i <= s.cols; ++i) in.x[in.x.size() - i] *= 1e6f;
  const Buffer<u32> count = {s.tokens};
  const u32 max_tokens = s.tokens + 3;
  Groups groups(s, max_tokens, tile_tokens);
  launch(groups.operation(s, in.routes, count.data(), tile_tokens));
  Buffer<float> out(s.tokens * s.top_k * s.rows);
  multiply(GroupedGemm{in.product(out, groups, has_bias), count.data(), max_tokens});
  const double rounding = product_rounding(kind);
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
                24 * rounding * size, rounding);
  }
}

}  // namespace kernel_test

namespace {

void multiply(const GroupedGemm& op) { launch(op); }

void check(const WeightKind& kind, const GroupedShape& s, u32 n_used, bool has_bias = true) {
  check_grouped_gemm(kind, s, n_used, has_bias, grouped_gemm_tokens(), multiply);
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

}  // namespace

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
// One expert with more than a tile, others without pairs.
TEST(grouped_gemm_of_one_expert_for_all) { check(half_kinds[3], {150, 6, 1, 20, 64, true}, 1); }
