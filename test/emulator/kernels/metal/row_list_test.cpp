// Products of a list of rows: the same bits as among all rows, and other rows are not written.

#include <algorithm>

#include "../grouped_products.h"
#include "launch.h"

namespace {

constexpr u32 kRows = 11, kListed = 5;

// Runs launch(out, n_rows, args, list) for all rows, and for the rows of a list.
template <class Args, class Launch>
void check(u32 stride, Args args, metal_args::MatvecArgs Args::* product, Launch launch) {
  const Buffer<u32> n_rows = {kRows}, n_listed = {kListed}, list = {7, 0, 10, 2, 3};
  Buffer<float> all(kRows * stride), some(kRows * stride);
  launch(all.data(), n_rows.data(), args, nullptr);
  (args.*product).has_row_list = 1;
  launch(some.data(), n_listed.data(), args, list.data());
  for (u32 r = 0; r < kRows; ++r) {
    const bool listed = std::find(list.data(), list.data() + kListed, r) != list.data() + kListed;
    for (u32 i = 0; i < stride; ++i) {
      const float value = some[r * stride + i];
      EXPECT(listed ? value == all[r * stride + i] : std::isnan(value));
    }
  }
}

// The arguments of the product, which may be part of other arguments.
struct Plain {
  metal_args::MatvecArgs product;
};

}  // namespace

TEST(row_list_of_matvec) {
  Random random(1);
  for (const WeightKind& kind : {fast_kinds[1], fast_kinds[4], fast_kinds[5]}) {
    const DeviceWeight weight = random_weight(random, kind, 37, 512);
    const auto x = random_floats(random, kRows * 512);
    for (const u32 at_once : {1u, 4u, 8u}) {
      check(37, Plain{matvec_args(weight, 37, 1, {nullptr, nullptr, 1, 0})}, &Plain::product,
            [&](float* out, const u32* n, const Plain& args, const u32* list) {
              launch_metal("matvec<" + weight.format + ", " + std::to_string(at_once) + ">",
                           {{2, blocks_for(kRows, at_once)}, {256}}, args.product, out, x.data(),
                           weight.data.data(), kNothing, kNothing, n, list, kNothing, kNothing,
                           kNothing);
            });
    }
  }
}

TEST(row_list_of_gemm) {
  Random random(2);
  for (const WeightKind& kind : {fast_kinds[0], fast_kinds[3], fast_kinds[6]}) {
    const DeviceWeight weight = random_weight(random, kind, 70, 512);
    const auto x = random_floats(random, kRows * 512);
    check(70, Plain{matvec_args(weight, 70, 1, {nullptr, nullptr, 1, 0})}, &Plain::product,
          [&](float* out, const u32* n, const Plain& args, const u32* list) {
            const GemmRows rows(weight, x.data(), kRows, 1, n, list);
            launch_metal("gemm<" + weight.format + ">", {{1, 2}, {128}}, args.product, out,
                         rows.x(), rows.factors(), weight.data.data(), kNothing, kNothing, n, list,
                         kNothing, kNothing, kNothing);
          });
  }
}

TEST(row_list_of_rms_norm_matvec) {
  Random random(3);
  const DeviceWeight weight = random_weight(random, fast_kinds[4], 37, 512);
  const auto x = random_floats(random, kRows * 512), norm = random_floats(random, 512);
  const metal_args::RmsNormMatvecArgs all = {
      .product = matvec_args(weight, 37, 1, {nullptr, nullptr, 1, 0}), .eps = 1e-5f, .offset = 0};
  check(37, all, &metal_args::RmsNormMatvecArgs::product,
        [&](float* out, const u32* n, const metal_args::RmsNormMatvecArgs& args, const u32* list) {
          launch_metal("rms_norm_matvec<" + weight.format + ", 8>", {{2, 2}, {256}}, args, out,
                       x.data(), norm.data(), weight.data.data(), kNothing, kNothing, n, list,
                       kNothing, kNothing);
        });
}

TEST(row_list_of_experts) {
  const GroupedShape s = {
      .tokens = kRows, .n_experts = 4, .top_k = 2, .rows = 70, .cols = 256, .shared = true};
  const Buffer<u32> n_rows = {kRows}, n_listed = {kListed}, list = {7, 0, 10, 2, 3};
  for (const WeightKind& kind : {fast_kinds[0], fast_kinds[4]}) {
    for (const bool matvec : {true, false}) {
      Random random(4);
      const GroupedInputs in(random, kind, s, 3);
      Buffer<float> all(kRows * s.top_k * s.rows), some(kRows * s.top_k * s.rows);
      const auto multiply = [&](Buffer<float>& out, const Buffer<u32>& n, const u32* rows) {
        const u32 tile_tokens = matvec ? 4 : grouped_gemm_tokens();
        Groups groups(s, kRows, tile_tokens);
        launch_moe_group(groups.operation(s, in.routes, n.data(), tile_tokens), rows);
        const GroupedMatvec product = in.product(out, groups, true);
        if (matvec) {
          launch(product);
        } else {
          launch(GroupedGemm{product, n_rows.data(), kRows});
        }
      };
      multiply(all, n_rows, nullptr);
      multiply(some, n_listed, list.data());
      for (u32 i = 0; i < some.size(); ++i) {
        const u32 row = i / s.rows / s.top_k;
        const bool listed =
            std::find(list.data(), list.data() + kListed, row) != list.data() + kListed;
        EXPECT(listed ? some[i] == all[i] : std::isnan(some[i]));
      }
    }
  }
}
