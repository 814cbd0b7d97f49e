// Elementwise kernels on rows.

#include "operations.h"

namespace {

double plain_unit(u32 unit, double gate, double up) {
  if (unit != 4) return plain_activation(unit, gate) * up;
  const double g = std::min(gate, 7.0), u = std::clamp(up, -7.0, 7.0);
  return (u + 1) * g / (1 + std::exp(-1.702 * g));
}

void check_glu(u32 rows, u32 groups, u32 width, u32 unit) {
  Random random(width + unit);
  const u32 cols = groups * width;
  // Large enough for the limits of the clamped unit.
  const auto x = random_floats(random, u64(rows) * 2 * cols, 4);
  Buffer<float> out(u64(rows) * cols);
  const Buffer<u32> n_rows = {rows};
  launch<Glu>(rows + 1,
              {.out = out.data(), .x = x.data(), .n_rows = n_rows.data()},
              {.out_cols = cols, .width = width, .unit = unit});
  std::vector<double> expected;
  for (u32 r = 0; r < rows; ++r) {
    for (u32 i = 0; i < cols; ++i) {
      const float* group = x.data() + r * 2 * cols + i / width * 2 * width;
      expected.push_back(plain_unit(unit, group[i % width], group[width + i % width]));
    }
  }
  expect_near("glu", out, expected, 2e-6, 1e-5);
}

}  // namespace

TEST(glu_of_silu) { check_glu(3, 1, 1030, 1); }
TEST(glu_of_gelu_in_groups) { check_glu(2, 3, 77, 2); }
TEST(glu_of_erf_gelu) { check_glu(1, 1, 5, 3); }
TEST(glu_with_limits) { check_glu(2, 2, 300, 4); }
TEST(glu_with_limits_keeps_nan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Buffer<u32> n_rows = {2};
  const Buffer<float> x = {nan, 1, 1, nan};
  Buffer<float> out = {0, 0};
  launch<Glu>(2,
              {.out = out.data(), .x = x.data(), .n_rows = n_rows.data()},
              {.out_cols = 1, .width = 1, .unit = 4});
  EXPECT(std::isnan(out[0]) && std::isnan(out[1]));
}

TEST(fused_residual_rms_norm_of_both_kinds) {
  Random random(5);
  const u32 rows = 2, cols = 301;
  const float offset = 1.0f, next_offset = 0.25f;
  const auto x = random_floats(random, rows * cols), residual = random_floats(random, rows * cols);
  const auto x_weight = random_floats(random, cols), weight = random_floats(random, cols);
  const Buffer<u32> n_rows = {rows};
  for (const bool norm_x : {false, true}) {
    Buffer<float> sum(rows * cols), out(rows * cols);
    const FusedResidualRmsNormArgs args{.cols = cols,
                                        .eps = 0.1f,
                                        .offset = offset,
                                        .next_eps = 0.02f,
                                        .next_offset = next_offset,
                                        .has_x_weight = norm_x};
    forge::Geometry shape = forge::geometry(args, rows + 1);
    shape.group.memory = kept_row_bytes(cols);
    launch<FusedResidualRmsNorm>(shape,
                                 {.out = out.data(),
                                  .sum = sum.data(),
                                  .x = x.data(),
                                  .x_weight = norm_x ? x_weight.data() : nullptr,
                                  .residual = residual.data(),
                                  .weight = weight.data(),
                                  .n_rows = n_rows.data()},
                                 args);
    std::vector<double> sums, outs;
    for (u32 r = 0; r < rows; ++r) {
      double squares = 0, next_squares = 0;
      for (u32 i = 0; i < cols; ++i) squares += double(x[r * cols + i]) * x[r * cols + i];
      for (u32 i = 0; i < cols; ++i) {
        const double normed =
            norm_x ? x[r * cols + i] / std::sqrt(squares / cols + 0.1) *
                         (x_weight[i] + double(offset))
                   : x[r * cols + i];
        sums.push_back(residual[r * cols + i] + normed);
        next_squares += sums.back() * sums.back();
      }
      for (u32 i = 0; i < cols; ++i) {
        outs.push_back(sums[r * cols + i] / std::sqrt(next_squares / cols + 0.02) *
                       (weight[i] + double(next_offset)));
      }
    }
    expect_near("sum", sum, sums, 1e-6, 1e-5);
    expect_near("out", out, outs, 1e-6, 1e-5);
  }
}

TEST(layer_norm_with_and_without_bias) {
  Random random(6);
  const u32 rows = 3, cols = 131;
  auto x = random_floats(random, rows * cols);
  for (float& value : x) value += 50;  // a mean that a one-pass variance would not survive
  const auto weight = random_floats(random, cols), bias = random_floats(random, cols);
  const Buffer<u32> n_rows = {rows};
  for (const bool with_bias : {false, true}) {
    Buffer<float> out(rows * cols);
    launch<LayerNorm>(rows + 1,
                      {.out = out.data(),
                       .x = x.data(),
                       .weight = weight.data(),
                       .bias = with_bias ? bias.data() : nullptr,
                       .n_rows = n_rows.data()},
                      {.cols = cols, .eps = 0.1f, .has_bias = with_bias});
    std::vector<double> expected;
    for (u32 r = 0; r < rows; ++r) {
      double mean = 0, variance = 0;
      for (u32 i = 0; i < cols; ++i) mean += x[r * cols + i] / double(cols);
      for (u32 i = 0; i < cols; ++i) variance += std::pow(x[r * cols + i] - mean, 2) / cols;
      for (u32 i = 0; i < cols; ++i) {
        expected.push_back((x[r * cols + i] - mean) / std::sqrt(variance + 0.1) * weight[i] +
                           (with_bias ? bias[i] : 0));
      }
    }
    expect_near("layer_norm", out, expected, 2e-5, 2e-5);
  }
}

TEST(gather_columns_of_three_values) {
  Random random(8);
  const u32 rows = 2, groups = 40;
  const u32 cols[] = {64, 17 * groups, 9};
  const Buffer<float> x[] = {random_floats(random, rows * cols[0]),
                             random_floats(random, rows * cols[1]),
                             random_floats(random, rows * cols[2])};
  const u32 group_cols = 5 + 17 + 9, out_cols = groups * group_cols;
  Buffer<float> out(rows * out_cols);
  const Buffer<u32> n_rows = {rows};
  launch<GatherColumns>(4,
                        {.out = out.data(),
                         .x0 = x[0].data(),
                         .x1 = x[1].data(),
                         .x2 = x[2].data(),
                         .n_rows = n_rows.data()},
                        {.out_cols = out_cols,
                         .group_cols = group_cols,
                         .pieces = {{cols[0], 5, 20, 1, 1.0f},
                                    {cols[1], 17, 0, 17, -0.5f},
                                    {cols[2], 9, 0, 0, 3.0f}}});
  size_t at = 0;
  for (u32 r = 0; r < rows; ++r) {
    for (u32 g = 0; g < groups; ++g) {
      for (u32 i = 0; i < 5; ++i) EXPECT(out[at++] == x[0][r * 64 + 20 + g + i]);
      for (u32 i = 0; i < 17; ++i) EXPECT(out[at++] == -0.5f * x[1][r * cols[1] + g * 17 + i]);
      for (u32 i = 0; i < 9; ++i) EXPECT(out[at++] == 3.0f * x[2][r * 9 + i]);
    }
  }
}

// Columns in the orders of two of three experts, with x shared by both or separate.
void check_permute(bool is_routed, bool is_shared) {
  Random random(10 + is_routed * 2 + is_shared);
  const u32 rows = 3, cols = 1100, experts = is_routed ? 3 : 1, top_k = is_routed ? 2 : 1;
  const u32 x_cols = is_shared ? cols : top_k * cols, out_cols = top_k * cols;
  const auto x = random_floats(random, rows * x_cols);
  Buffer<float> order(experts * cols), route(rows * 2 * top_k), out(rows * out_cols);
  for (float& column : order) column = static_cast<float>(random.below(cols));
  for (float& expert : route) expert = static_cast<float>(random.below(experts));
  const Buffer<u32> n_rows = {rows};
  launch<PermuteColumns>(rows + 1,
                         {.out = out.data(),
                          .x = x.data(),
                          .order = order.data(),
                          .route = is_routed ? route.data() : nullptr,
                          .n_rows = n_rows.data()},
                         {.x_cols = x_cols,
                          .cols = cols,
                          .out_cols = out_cols,
                          .routed = is_routed});
  for (u32 r = 0; r < rows; ++r) {
    for (u32 k = 0; k < top_k; ++k) {
      const u32 expert = is_routed ? static_cast<u32>(route[r * 2 * top_k + k]) : 0;
      for (u32 i = 0; i < cols; ++i) {
        const u32 column = static_cast<u32>(order[expert * cols + i]);
        EXPECT(out[r * out_cols + k * cols + i] ==
               x[r * x_cols + (is_shared ? 0 : k * cols) + column]);
      }
    }
  }
}
TEST(permute_columns) { check_permute(false, true); }
TEST(permute_columns_for_experts) {
  check_permute(true, true);
  check_permute(true, false);
}

TEST(gather_columns_of_one_value) {
  Random random(9);
  const auto x = random_floats(random, 30);
  Buffer<float> out(20);
  const Buffer<u32> n_rows = {2};
  launch<GatherColumns>(2,
                        {.out = out.data(),
                         .x0 = x.data(),
                         .x1 = nullptr,
                         .x2 = nullptr,
                         .n_rows = n_rows.data()},
                        {.out_cols = 10, .group_cols = 10, .pieces = {{15, 10, 3, 0, 2.0f}}});
  for (u32 i = 0; i < 20; ++i) EXPECT(out[i] == 2 * x[i / 10 * 15 + 3 + i % 10]);
}

struct LoraShape {
  bool of_outputs = false;
  u32 n_ranks = 20;
  u32 activation = 0;
  // Blocks of the weight, of which a route chooses top_k for a row, or which are all of a row.
  u32 n_blocks = 1;
  u32 top_k = 0;
  bool shares_x = false, shares_a = false, shares_b = false;
};

// Rows of three sequences, of which the last uses no adapter, with ranks of part of the columns.
void check_lora(const LoraShape& shape) {
  const auto [of_outputs, n_ranks, activation, n_blocks, top_k, shares_x, shares_a, shares_b] =
      shape;
  Random random(20 + of_outputs + n_ranks + n_blocks);
  const u32 rows = 6, a_cols = 100, cols = 300, width = 170, n_adapters = 3;
  const u32 n_results = top_k ? top_k : n_blocks, x_cols = shares_x ? a_cols : n_results * a_cols;
  const u32 a_step = n_blocks == 1 || shares_a ? 0 : n_ranks;
  const u32 b_step = n_blocks == 1 || shares_b ? 0 : n_ranks;
  const auto x = random_floats(random, rows * x_cols);
  const auto a = random_floats(random, (a_step ? n_blocks : 1) * n_ranks * a_cols);
  const auto b = random_floats(random, (b_step ? n_blocks : 1) * n_ranks * width);
  const auto y = random_floats(random, rows * n_results * cols);
  const auto residual = random_floats(random, rows * n_results * cols);
  const Buffer<float> scales = {1.0f, 0.0f, -0.5f, 0.0f, 2.0f, 0.0f, 0.0f, 0.0f, 0.0f};
  const Buffer<i32> sequences = {0, 2, 1, 1, 0, 2, 0}, output_rows = {6, 3, 0, 1, 2, 5};
  const Buffer<u32> n_rows = {rows};
  Buffer<float> ranks(3 * n_ranks), products(rows * n_results * n_ranks), out(y.size());
  Buffer<float> route(rows * 2 * n_results);
  for (u32 r = 0; r < n_ranks; ++r) {
    const float part[] = {float(random.below(n_adapters)), float(random.below(cols - width)),
                          float(width - random.below(50))};
    std::copy_n(part, 3, ranks.data() + 3 * r);
  }
  for (u32 i = 0; i < rows * 2 * n_results; ++i) {
    route[i] = i % (2 * n_results) < n_results ? float(random.below(n_blocks)) : 0.5f;
  }
  launch<LoraProducts>((rows + 3) * n_results,
                       {.products = products.data(),
                        .x = x.data(),
                        .route = top_k ? route.data() : nullptr,
                        .a = a.data(),
                        .ranks = ranks.data(),
                        .scales = scales.data(),
                        .sequences = sequences.data(),
                        .output_rows = of_outputs ? output_rows.data() : nullptr,
                        .n_rows = n_rows.data()},
                       {.cols = a_cols,
                        .x_cols = x_cols,
                        .n_ranks = n_ranks,
                        .n_results = n_results,
                        .a_step = a_step,
                        .routed = top_k != 0,
                        .n_adapters = n_adapters,
                        .of_outputs = of_outputs});
  launch<LoraSums>((rows + 3) * n_results,
                   {.out = out.data(),
                    .y = y.data(),
                    .products = products.data(),
                    .route = top_k ? route.data() : nullptr,
                    .b = b.data(),
                    .ranks = ranks.data(),
                    .residual = of_outputs ? residual.data() : nullptr,
                    .n_rows = n_rows.data()},
                   {.cols = cols,
                    .n_ranks = n_ranks,
                    .n_results = n_results,
                    .b_step = b_step,
                    .routed = top_k != 0,
                    .width = width,
                    .alpha = 0.5f,
                    .activation = activation,
                    .has_residual = of_outputs});
  std::vector<double> expected;
  for (u32 result = 0; result < rows * n_results; ++result) {
    const u32 row = result / n_results, k = result % n_results;
    const u32 block = top_k ? u32(route[row * 2 * n_results + k]) : k;
    const u32 sequence = u32(sequences[of_outputs ? u32(output_rows[row]) : row]);
    const float* from = x.data() + row * x_cols + (shares_x ? 0 : k * a_cols);
    std::vector<double> sums(y.data() + result * cols, y.data() + (result + 1) * cols);
    for (u32 r = 0; r < n_ranks; ++r) {
      const auto [adapter, first, n] = std::array{ranks[3 * r], ranks[3 * r + 1], ranks[3 * r + 2]};
      const float *a_row = a.data() + (block * a_step + r) * a_cols,
                  *b_row = b.data() + (block * b_step + r) * width;
      double product = 0;
      for (u32 i = 0; i < a_cols; ++i) product += double(from[i]) * a_row[i];
      product *= scales[sequence * n_adapters + u32(adapter)];
      for (u32 i = 0; i < u32(n); ++i) sums[u32(first) + i] += product * b_row[i];
    }
    for (u32 i = 0; i < cols; ++i) {
      const double before = of_outputs ? residual[result * cols + i] : 0.0;
      expected.push_back(before + 0.5 * plain_activation(activation, sums[i]));
    }
  }
  expect_near("lora", out, expected, 1e-3, 1e-5);
}
TEST(lora_of_tokens) { check_lora({}); }
TEST(lora_of_outputs_with_an_activation) {
  check_lora({.of_outputs = true, .n_ranks = 9, .activation = 1});
}
TEST(lora_of_more_ranks_than_threads) { check_lora({.n_ranks = 300}); }
TEST(lora_of_experts) { check_lora({.n_blocks = 5, .top_k = 3, .shares_x = true}); }
TEST(lora_of_experts_after_gates) { check_lora({.of_outputs = true, .n_blocks = 4, .top_k = 2}); }
TEST(lora_of_heads) { check_lora({.n_ranks = 5, .n_blocks = 3, .shares_a = true}); }
TEST(lora_of_heads_with_one_b) { check_lora({.n_ranks = 5, .n_blocks = 3, .shares_b = true}); }

TEST(gather_outputs_and_softcap) {
  Random random(7);
  const u32 cols = 1100;
  const auto x = random_floats(random, 4 * cols, 40);
  const Buffer<i32> wanted = {3, 0, 3};
  const Buffer<u32> n = {3};
  Buffer<float> out(3 * cols), capped(3 * cols);
  launch<GatherOutputs>(5,
                        {.out = out.data(),
                         .x = x.data(),
                         .output_rows = wanted.data(),
                         .n_outputs = n.data()},
                        {.cols = cols});
  launch<Softcap>(5,
                  {.out = capped.data(), .x = out.data(), .n_rows = n.data()},
                  {.cols = cols, .cap = 25.0f});
  std::vector<double> expected;
  for (u32 o = 0; o < 3; ++o) {
    for (u32 i = 0; i < cols; ++i) {
      EXPECT(out[o * cols + i] == x[wanted[o] * cols + i]);
      expected.push_back(25 * std::tanh(x[wanted[o] * cols + i] / 25.0));
    }
  }
  expect_near("softcap", capped, expected, 1e-5, 1e-6);
}

TEST(clamp_values) {
  Random random(8);
  const u32 cols = 1100;
  auto x = random_floats(random, 2 * cols, 40);
  x[7] = std::numeric_limits<float>::quiet_NaN();
  const Buffer<u32> n = {2};
  Buffer<float> out(2 * cols);
  launch<Clamp>(5,
                {.out = out.data(), .x = x.data(), .n_rows = n.data()},
                {.cols = cols, .limit = 8.0f});
  EXPECT(std::isnan(out[7]));
  for (u32 i = 0; i < 2 * cols; ++i) EXPECT(i == 7 || out[i] == std::clamp(x[i], -8.0f, 8.0f));
}
