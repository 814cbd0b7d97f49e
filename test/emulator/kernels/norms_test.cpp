#include "operations.h"

namespace {

std::vector<double> plain_rms_norm(const float* x, const float* weight, u32 rows, u32 cols,
                                   double eps, double offset) {
  std::vector<double> out;
  for (u32 r = 0; r < rows; ++r) {
    double squares = 0;
    for (u32 i = 0; i < cols; ++i) squares += double(x[r * cols + i]) * x[r * cols + i];
    for (u32 i = 0; i < cols; ++i) {
      out.push_back(x[r * cols + i] / std::sqrt(squares / cols + eps) * (weight[i] + offset));
    }
  }
  return out;
}

void check_rms_norm(u32 rows, u32 max_rows, u32 cols, u32 threads, bool with_residual,
                    u32 groups = 1, float scale = 3, u32 weight_groups = 1) {
  Random random(rows * 1000 + cols);
  const u64 size = u64(rows) * groups * cols;
  const auto x = random_floats(random, size, scale);
  const auto weight = random_floats(random, weight_groups * cols);
  const auto residual = random_floats(random, size);
  Buffer<float> out(size);
  const Buffer<u32> n_rows = {rows};
  const RmsNormArgs args{.cols = cols,
                         .groups = groups,
                         .weight_groups = weight_groups,
                         .eps = 1e-5f,
                         .offset = 0.75f,
                         .has_residual = with_residual};
  forge::Geometry shape = forge::geometry(args, max_rows);
  shape.group.threads = threads;
  launch<RmsNorm>(shape,
                  {.out = out.data(),
                   .x = x.data(),
                   .weight = weight.data(),
                   .residual = with_residual ? residual.data() : nullptr,
                   .n_rows = n_rows.data()},
                  args);
  std::vector<double> expected;
  for (u32 i = 0; i < rows * groups; ++i) {
    const float* own = weight.data() + i % weight_groups * cols;
    std::ranges::copy(plain_rms_norm(x.data() + u64(i) * cols, own, 1, cols, 1e-5, 0.75),
                      std::back_inserter(expected));
  }
  for (size_t i = 0; with_residual && i < expected.size(); ++i) expected[i] += residual[i];
  expect_near("rms_norm", out, expected, 1e-6, 1e-5);
}

void check_random_rms_norm(Random& random) {
  const u32 rows = random.between(1, 5);
  check_rms_norm(rows, rows + random.below(3), random.between(1, 3000),
                 random.below(2) == 0 ? 256 : 1024, random.below(2) == 0);
}

}  // namespace

TEST_RANDOM(random_rms_norm, check_random_rms_norm, 10)
TEST(rms_norm_of_one_odd_row) { check_rms_norm(1, 1, 37, 256, false); }
TEST(rms_norm_of_groups) { check_rms_norm(3, 4, 48, 256, true, 5); }
TEST(rms_norm_of_groups_with_own_weights) { check_rms_norm(3, 4, 48, 256, false, 5, 3, 5); }
TEST(rms_norm_with_residual) { check_rms_norm(3, 5, 288, 256, true); }
// The mean square is a tenth of eps.
TEST(rms_norm_of_small_numbers) { check_rms_norm(2, 2, 70, 256, false, 1, 1e-3f); }
TEST(rms_norm_of_wide_rows) { check_rms_norm(2, 2, 2051, 1024, false); }
