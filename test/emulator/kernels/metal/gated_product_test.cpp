// Products fused with the gated unit that follows them: the same bits as separate launches.

#include "launch.h"

namespace {

// Several pairs of rows per SIMD group, and a width that is not a multiple of them.
constexpr u32 kWidth = 19, kCols = 1024, kTokens = 5;

struct Launcher {
  const DeviceWeight& weight;
  Buffer<float> x, norm;
  const Buffer<u32> n_rows = {kTokens};
  u32 at_once, split;
  bool normed;

  void operator()(Buffer<float>& out, metal_args::MatvecArgs args) const {
    const u32 rows = metal_args::kMatvecSimdgroups / split * metal_args::kMatvecRows;
    const emulator::MetalLaunch shape = {
        {blocks_for(weight.rows, rows), blocks_for(kTokens, at_once)}, {256}};
    const std::string list = "<" + weight.format + ", " + std::to_string(at_once) + ">";
    if (normed) {
      launch_metal("rms_norm_matvec" + list, shape,
                   metal_args::RmsNormMatvecArgs{args, 1e-5f, 0.0f}, out.data(), x.data(),
                   norm.data(), weight.data.data(), kNothing, kNothing, n_rows.data(), kNothing,
                   kNothing, kNothing);
    } else {
      launch_metal("matvec" + list, shape, args, out.data(), x.data(), weight.data.data(), kNothing,
                   kNothing, n_rows.data(), kNothing, kNothing, kNothing, kNothing);
    }
  }
};

// Compares multiply(out, args) that also computes the unit with a product and a unit apart.
template <class Multiply>
void check_unit(const Multiply& multiply, const DeviceWeight& weight, u32 split,
                const Buffer<u32>& n_rows, u32 unit) {
  const u32 tokens = n_rows[0], width = weight.rows / 2;
  Buffer<float> product(tokens * weight.rows), expected(tokens * width), out(tokens * width);
  metal_args::MatvecArgs args = matvec_args(weight, weight.rows, split, {nullptr, nullptr, 1, 0});
  multiply(product, args);
  launch<Glu>(tokens, {.out = expected.data(), .x = product.data(), .n_rows = n_rows.data()},
              {.out_cols = width, .width = width, .unit = unit});
  args.out_stride = width;
  args.epilogue.opened = width;
  args.epilogue.unit = unit;
  multiply(out, args);
  for (u32 i = 0; i < out.size(); ++i) EXPECT(out[i] == expected[i]);
}

void check(const WeightKind& kind, u32 at_once, u32 split, bool normed, u32 unit) {
  Random random(kind.type + at_once);
  const DeviceWeight weight = random_weight(random, kind, 2 * kWidth, kCols);
  const Launcher multiply = {.weight = weight,
                             .x = random_floats(random, kTokens * kCols),
                             .norm = random_floats(random, kCols),
                             .at_once = at_once,
                             .split = split,
                             .normed = normed};
  check_unit(multiply, weight, split, multiply.n_rows, unit);
}

// A prompt, whose rows of weights take two threadgroups.
void check_prompt(const WeightKind& kind, u32 unit) {
  constexpr u32 kPromptWidth = 51, kPromptCols = 256, kPrompt = 19;
  Random random(kind.type);
  const DeviceWeight weight = random_weight(random, kind, 2 * kPromptWidth, kPromptCols);
  const auto x = random_floats(random, kPrompt * kPromptCols);
  const Buffer<u32> n_rows = {kPrompt};
  const GemmRows rows(weight, x.data(), kPrompt, 1, n_rows.data());
  const auto multiply = [&](Buffer<float>& out, const metal_args::MatvecArgs& args) {
    const u32 tiles = blocks_for(weight.rows, metal_args::kGemmRows);
    launch_metal("gemm<" + weight.format + ">", {{1, tiles}, {128}}, args, out.data(), rows.x(),
                 rows.factors(), weight.data.data(), kNothing, kNothing, n_rows.data(), kNothing,
                 kNothing, kNothing, kNothing);
  };
  check_unit(multiply, weight, 1, n_rows, unit);
}

}  // namespace

TEST(gated_product_of_one_token_at_once) {
  for (const WeightKind& kind : fast_kinds) check(kind, 1, 1, kind.type % 2 == 0, 1);
}
TEST(gated_product_of_split_rows) {
  for (const WeightKind& kind : fast_kinds) check(kind, 8, 2, kind.type % 2 != 0, 4);
}
TEST(gated_product_of_a_prompt) {
  for (const WeightKind& kind : fast_kinds) check_prompt(kind, kind.type % 2 == 0 ? 1 : 4);
}
