// Products of prompts by wgmma.

#include <algorithm>

#include "../../../../csrc/common/quant/weight_type.h"
#include "../grouped_products.h"
#include "launch.h"

namespace {

// The fast formats without F32.
const WeightKind* const kKinds[] = {&half_kinds[0], &half_kinds[1], &half_kinds[2], &half_kinds[3],
                                    &half_kinds[4], &half_kinds[5], &half_kinds[6]};

// Up to `most` columns, a whole number of blocks.
u32 random_cols(Random& random, const WeightKind& kind, u32 most) {
  const u32 unit = forge::find_weight_type(kind.type)->block_elements;
  return unit * random.between(1, (most + unit - 1) / unit);
}

template <u32 products, u32 blocks>
void multiply(const Gemm& op) {
  if (!launch_wgmma_gemm(op, {op.n_rows, nullptr}, products, blocks)) launch(op);
}
using Multiply = void (*)(const Gemm&);
constexpr Multiply kMultiply[] = {multiply<1, 1>, multiply<1, 3>, multiply<2, 1>, multiply<2, 2>};

void check_random(Random& random) {
  const WeightKind& kind = *random.one_of(kKinds);
  check_gemm(kind, random.between(1, 300), random_cols(random, kind, 300), random.between(1, 300),
             random.one_of(kMultiply));
}

// One that has each part of an epilogue or lacks it.
struct RandomEpilogue {
  Buffer<float> bias, residual;
  Epilogue epilogue;

  RandomEpilogue(Random& random, u32 rows, u64 numbers)
      : bias(random_floats(random, rows)),
        residual(random_floats(random, numbers)),
        epilogue{random.below(2) ? bias.data() : nullptr,
                 random.below(2) ? residual.data() : nullptr, random.below(2) ? 1.0f : -0.5f,
                 random.below(4)} {}

  double of(double product, u32 row, u64 at) const {
    const auto& [own_bias, own_residual, alpha, activation] = epilogue;
    return (own_residual ? own_residual[at] : 0) +
           alpha * plain_activation(activation, product + (own_bias ? own_bias[row] : 0));
  }
};

void check_epilogue(Random& random) {
  const WeightKind& kind = *random.one_of(kKinds);
  const u32 rows = random.between(1, 140), cols = random_cols(random, kind, 100);
  const u32 tokens = random.between(1, 30), stride = rows + random.below(3);
  const DeviceWeight weight = random_weight(random, kind, rows, cols);
  const auto x = random_floats(random, u64(tokens) * cols);
  const RandomEpilogue e(random, rows, u64(tokens) * stride);
  const Buffer<u32> n_rows = {tokens};
  Buffer<float> out(u64(tokens) * stride);
  random.one_of(kMultiply)({.out = out.data(),
                            .x = x.data(),
                            .weight = &weight,
                            .n_rows = n_rows.data(),
                            .max_rows = tokens + random.below(200),
                            .out_stride = stride,
                            .epilogue = e.epilogue});
  const double rounding = product_rounding(kind);
  for (u32 token = 0; token < tokens; ++token) {
    std::vector<double> expected;
    for (u32 row = 0; row < rows; ++row) {
      const double product = plain_dot(weight.row(row), x.data() + u64(token) * cols, cols);
      expected.push_back(e.of(product, row, u64(token) * stride + row));
    }
    expect_near("product", out.data() + u64(token) * stride, expected.data(), rows, 24 * rounding,
                rounding);
    for (u32 row = rows; row < stride; ++row) EXPECT(std::isnan(out[u64(token) * stride + row]));
  }
}

template <u32 products, u32 blocks>
void multiply_groups(const GroupedGemm& op) {
  if (!launch_wgmma_grouped_gemm(op, products, blocks)) launch(op);
}
constexpr void (*kMultiplyGroups[])(const GroupedGemm&) = {
    multiply_groups<1, 1>, multiply_groups<1, 3>, multiply_groups<2, 1>, multiply_groups<2, 2>};

void check_random_groups(Random& random) {
  const u32 n_experts = random.between(1, 12), n_used = random.between(1, n_experts);
  const WeightKind& kind = *random.one_of(kKinds);
  check_grouped_gemm(kind,
                     {.tokens = random.between(1, 300),
                      .n_experts = n_experts,
                      .top_k = random.between(1, std::min(n_used, 3u)),
                      .rows = random.between(1, 300),
                      .cols = random_cols(random, kind, 150),
                      .shared = random.below(2) == 0},
                     n_used, random.below(2) == 0, 128, random.one_of(kMultiplyGroups));
}

}  // namespace

TEST_RANDOM(random_wgmma_grouped_gemm, check_random_groups, 5)
// One expert with more than a tile, others without pairs.
TEST(wgmma_grouped_gemm_of_one_expert_for_all) {
  check_grouped_gemm(half_kinds[0], {150, 6, 1, 20, 64, true}, 1, true, 128, multiply_groups<1, 2>);
  check_grouped_gemm(half_kinds[1], {70, 3, 2, 130, 77, false}, 2, false, 128,
                     multiply_groups<2, 1>);
}
TEST(wgmma_gemm_of_quantised_weights_and_several_tiles_a_block) {
  check_gemm(half_kinds[3], 520, 256, 190, multiply<2, 2>);
}
TEST(wgmma_gemm_of_quantised_weights) {
  for (int k = 2; k < 7; ++k) {
    check_gemm(half_kinds[k], 290, 512, 130, multiply<2, 3>);
    check_grouped_gemm(half_kinds[k], {70, 3, 2, 270, 256, k % 2 == 0}, 2, k % 2 == 0, 128,
                       multiply_groups<2, 1>);
  }
}
TEST_RANDOM(random_wgmma_gemm, check_random, 6)
TEST_RANDOM(random_wgmma_gemm_epilogue, check_epilogue, 12)
TEST(wgmma_gemm_of_odd_columns) {
  check_gemm(half_kinds[0], 3, 77, 5, multiply<1, 1>);
  check_gemm(half_kinds[1], 130, 172, 1, multiply<2, 1>);
}
TEST(wgmma_gemm_of_several_tiles_a_block) {
  check_gemm(half_kinds[0], 300, 330, 140, multiply<1, 2>);
  check_gemm(half_kinds[1], 520, 70, 260, multiply<2, 2>);
}
// More rows than a group of tiles.
TEST(wgmma_gemm_of_several_groups) { check_gemm(half_kinds[1], 2100, 20, 130, multiply<2, 3>); }
TEST(wgmma_gemm_of_a_token_is_the_same_with_any_other) {
  const u32 n_rows = 150, rows = 300;
  for (const WeightKind* kind : kKinds) {
    Random random(kind->type);
    const u32 cols = forge::find_weight_type(kind->type)->block_elements == 1 ? 200 : 256;
    const DeviceWeight weight = random_weight(random, *kind, rows, cols);
    const auto x = random_floats(random, n_rows * cols);
    const auto residual = random_floats(random, n_rows * rows);
    const auto multiplied = [&](const RowSet& set, u32 max_rows, u32 products) {
      Buffer<float> out(n_rows * rows);
      const Gemm op = {.out = out.data(),
                       .x = x.data(),
                       .weight = &weight,
                       .n_rows = nullptr,
                       .max_rows = max_rows,
                       .out_stride = rows,
                       .epilogue = {nullptr, residual.data(), 0.7f, 0}};
      if (!launch_wgmma_gemm(op, set, products, 2)) launch_gemm(op, set);
      return out;
    };
    const Buffer<u32> all = {n_rows}, some = {4}, list = {149, 64, 3, 0};
    const Buffer<float> expected = multiplied({all.data(), nullptr}, n_rows, 2);
    const Buffer<float> out = multiplied({some.data(), list.data()}, 4, 1);
    for (u32 i = 0; i < n_rows * rows; ++i) {
      const u32 row = i / rows;
      const bool listed = row == 149 || row == 64 || row == 3 || row == 0;
      EXPECT(listed ? out[i] == expected[i] : std::isnan(out[i]));
    }
  }
}
