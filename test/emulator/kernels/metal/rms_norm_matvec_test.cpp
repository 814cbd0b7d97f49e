// Products fused with the norm before them.

#include "launch.h"

namespace {

void check(const WeightKind& kind, u32 rows, u32 cols, u32 tokens, u32 at_once, u32 split) {
  Random random(kind.type * 3 + cols + tokens);
  const DeviceWeight weight = random_weight(random, kind, rows, cols);
  const auto x = random_floats(random, u64(tokens) * cols, 4), norm = random_floats(random, cols);
  const u32 stride = rows + 2;
  const auto bias = random_floats(random, rows), residual = random_floats(random, tokens * stride);
  Buffer<float> out(tokens * stride);
  const Buffer<u32> n_rows = {tokens};
  const metal_args::RmsNormMatvecArgs args = {
      .product = matvec_args(weight, stride, split, {bias.data(), residual.data(), 0.5f, 1}),
      .eps = 0.5f,
      .offset = 0.75f};
  const u32 group_rows = metal_args::kMatvecSimdgroups / split * simdgroup_rows(weight);
  launch_metal("rms_norm_matvec<" + weight.format + ", " + std::to_string(at_once) + ">",
               {{blocks_for(rows, group_rows), blocks_for(tokens, at_once) + 1}, {256}}, args,
               out.data(), x.data(), norm.data(), weight.data.data(), kNothing, kNothing,
               n_rows.data(), kNothing, bias.data(), residual.data());
  for (u32 t = 0; t < tokens; ++t) {
    double squares = 0;
    for (u32 i = 0; i < cols; ++i) squares += double(x[t * cols + i]) * x[t * cols + i];
    const double scale = 1 / std::sqrt(squares / cols + 0.5);
    std::vector<double> expected;
    for (u32 r = 0; r < rows; ++r) {
      double product = bias[r];
      for (u32 i = 0; i < cols; ++i) {
        product += weight.row(r)[i] * (x[t * cols + i] * scale * (norm[i] + 0.75));
      }
      expected.push_back(residual[t * stride + r] + 0.5 * product / (1 + std::exp(-product)));
    }
    expect_near("product", out.data() + t * stride, expected.data(), rows, 3e-5, 1e-5);
  }
}

}  // namespace

TEST(rms_norm_matvec_of_one_token) {
  for (const WeightKind& kind : fast_kinds) check(kind, 35, 768, 1, 1, 1);
}
TEST(rms_norm_matvec_of_split_rows) {
  for (const WeightKind& kind : fast_kinds) check(kind, 5, 256 * 17, 3, 2, 8);
}
TEST(rms_norm_matvec_of_many_tokens) {
  for (const WeightKind& kind : fast_kinds) {
    check(kind, 9, 256, 4, 4, 1);
    check(kind, 6, 512, 9, 8, 4);
  }
}
TEST(rms_norm_matvec_of_odd_columns) {
  for (const u32 cols : {1u, 7u, 173u}) {
    for (int k = 0; k < 3; ++k) check(fast_kinds[k], 3, cols, 2, 1, 2);
  }
}
