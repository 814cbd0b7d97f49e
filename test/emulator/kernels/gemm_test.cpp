// Products of many tokens, as in prompts.

#include "gemm_check.h"

#include "../../../csrc/common/quant/weight_type.h"

namespace kernel_test {

void check_gemm(const WeightKind& kind, u32 rows, u32 cols, u32 tokens,
                void (*multiply)(const Gemm&)) {
  Random random(kind.type + rows + tokens);
  const DeviceWeight weight = random_weight(random, kind, rows, cols);
  const u32 max_rows = tokens + tokens % 2 * 40;
  auto x = random_floats(random, u64(max_rows) * cols);
  // A kernel may read rows past the last, but no result depends on them.
  std::fill(x.begin() + u64(tokens) * cols, x.end(), NAN);
  // One token beyond the range of F16.
  for (u32 i = 0; i < cols; ++i) x[(tokens - 1) * cols + i] *= 1e6f;
  const u32 stride = rows + 1;
  const Buffer<u32> n_rows = {tokens};
  Buffer<float> out(tokens * stride);
  const auto bias = random_floats(random, rows), residual = random_floats(random, tokens * stride);
  multiply({.out = out.data(),
            .x = x.data(),
            .weight = &weight,
            .n_rows = n_rows.data(),
            .max_rows = max_rows,
            .out_stride = stride,
            .epilogue = {bias.data(), residual.data(), 2.0f, 0}});
  const double rounding = product_rounding(kind);
  for (u32 t = 0; t < tokens; ++t) {
    const double size = t + 1 == tokens ? 1e6 : 1;
    std::vector<double> expected;
    for (u32 r = 0; r < rows; ++r) {
      expected.push_back(residual[t * stride + r] +
                         2.0 * (plain_dot(weight.row(r), x.data() + t * cols, cols) + bias[r]));
    }
    expect_near("product", out.data() + t * stride, expected.data(), rows, 24 * rounding * size,
                rounding);
  }
}

}  // namespace kernel_test

namespace {

void multiply(const Gemm& op) { launch(op); }

void check_random_gemm(Random& random) {
  std::string name;
  const WeightKind kind = random.below(2) == 0 ? half_kinds[random.below(kHalfKinds)]
                                               : other_kind(random.one_of(other_types), name);
  const u32 unit = forge::find_weight_type(kind.type)->block_elements;
  check_gemm(kind, random.between(1, 150), unit * random.between(1, 1 + 500 / unit),
             random.between(1, 70), multiply);
}

}  // namespace

TEST_RANDOM(random_gemm, check_random_gemm, 8)
TEST(gemm_of_every_fast_format) {
  for (int k = 0; k < kHalfKinds; ++k) check_gemm(half_kinds[k], 131, 512, 66, multiply);
}
TEST(gemm_of_odd_columns) {
  // Of an even number of tokens, x ends with the last.
  check_gemm(half_kinds[0], 3, 77, 6, multiply);
  check_gemm(half_kinds[1], 130, 172, 1, multiply);
}
TEST(gemm_of_other_types) {
  std::string name;
  for (const u32 type : other_types) check_gemm(other_kind(type, name), 40, 256, 17, multiply);
}
