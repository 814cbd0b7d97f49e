// Products of a set of rows, and fused launches: compared to the bit with products of all rows in
// separate launches.

#include "../gemm_check.h"
#include "launch.h"

namespace {

// Calls multiply(out, set, max_rows) for all rows of x, and for a descending list of some rows.
template <class Multiply>
void check_list(u32 n_rows, u32 stride, Multiply multiply) {
  const Buffer<u32> all = {n_rows}, some = {3}, list = {n_rows - 1, 2, 0};
  Buffer<float> expected(n_rows * stride), out(n_rows * stride);
  multiply(expected.data(), RowSet{all.data(), nullptr}, n_rows);
  multiply(out.data(), RowSet{some.data(), list.data()}, 5);
  for (u32 row = 0; row < n_rows; ++row) {
    const bool listed = row == n_rows - 1 || row == 2 || row == 0;
    for (u32 i = row * stride; i < (row + 1) * stride; ++i) {
      EXPECT(listed ? out[i] == expected[i] : out[i] != out[i]);
    }
  }
}

void check_gated(const WeightKind& kind, u32 width, u32 cols, u32 tokens, u32 at_once, u32 split) {
  Random random(kind.type + width);
  const DeviceWeight weight = random_weight(random, kind, 2 * width, cols);
  const auto x = random_floats(random, u64(tokens) * cols, 2);
  const Buffer<u32> count = {tokens};
  const RowSet set = {count.data(), nullptr};
  Buffer<float> both(tokens * 2 * width), expected(tokens * width), out(tokens * width);
  launch(Matvec{.out = both.data(),
                .x = x.data(),
                .weight = &weight,
                .n_rows = count.data(),
                .max_rows = tokens,
                .out_stride = 2 * width,
                .epilogue = {nullptr, nullptr, 1, 0},
                .at_once = at_once,
                .split = split});
  launch<Glu>(tokens,
              {.out = expected.data(), .x = both.data(), .n_rows = count.data()},
              {.out_cols = width, .width = width, .unit = FORGE_SILU});
  const DecodeTile tile = decode_tile(weight, at_once, split);
  const HalfRows half = convert_rows(weight, x.data(), set, tokens, 1);
  const u32 rows = blocks_for(width, 8) * 16, max_tokens = tokens + tile.tokens;
  with_tiling(tile, max_tokens, rows, [&](emulator::Dim3 grid, const Tiling& tiling) {
    launch(decode_instance("gated_decode_gemm", weight, tile), {grid, {tile.threads}, tile.shared},
           ProductOperands{.out = out.data(),
                           .x = at_once == 1 ? float_rows(x.data()) : half.rows(),
                           .weight = weight_rows(weight, 2 * width),
                           .set = set},
           u32{FORGE_SILU}, tiling, SharedConversion{});
  });
  for (u32 i = 0; i < tokens * width; ++i) EXPECT(out[i] == expected[i]);
}

}  // namespace

TEST(products_of_listed_rows) {
  const u32 n_rows = 6, rows = 21, cols = 256;
  for (const WeightKind& kind : {half_kinds[0], half_kinds[2]}) {
    Random random(kind.type);
    const DeviceWeight weight = random_weight(random, kind, rows, cols);
    const auto x = random_floats(random, n_rows * cols);
    const auto residual = random_floats(random, n_rows * rows);
    const Epilogue epilogue = {nullptr, residual.data(), 1, 0};
    const auto product = [&](float* out, u32 max_rows) {
      return Gemm{.out = out,
                  .x = x.data(),
                  .weight = &weight,
                  .n_rows = nullptr,
                  .max_rows = max_rows,
                  .out_stride = rows,
                  .epilogue = epilogue};
    };
    check_list(n_rows, rows, [&](float* out, RowSet set, u32 max_rows) {
      launch_gemm(product(out, max_rows), set);
    });
    for (const u32 at_once : {1u, 2u, 4u}) {
      check_list(n_rows, rows, [&](float* out, RowSet set, u32 max_rows) {
        launch_decode_gemm({.out = out,
                            .x = x.data(),
                            .weight = &weight,
                            .n_rows = nullptr,
                            .max_rows = max_rows,
                            .out_stride = rows,
                            .epilogue = epilogue,
                            .at_once = at_once,
                            .split = 1},
                           set);
      });
    }
  }
}

TEST(matvec_of_listed_rows) {
  const u32 n_rows = 6, rows = 21, cols = 256;
  Random random(1);
  const DeviceWeight weight = random_weight(random, fast_kinds[0], rows, cols);
  const auto x = random_floats(random, n_rows * cols);
  check_list(n_rows, rows, [&](float* out, RowSet set, u32 max_rows) {
    launch("matvec<4>", {{blocks_for(rows, 16), blocks_for(max_rows, 4)}, {256}},
           ProductOperands{.out = out,
                           .x = float_rows(x.data()),
                           .weight = weight_rows(weight, rows),
                           .set = set},
           epilogue({nullptr, nullptr, 1, 0}, rows), 1u);
  });
}

TEST(gated_decode_gemm_is_decode_gemm_and_glu) {
  for (int k = 0; k < kHalfKinds; ++k) {
    check_gated(half_kinds[k], 21, 512, 1, 1, 1);
    check_gated(half_kinds[k], 21, 768, 1, 1, 2);
    check_gated(half_kinds[k], 5, 256, 9, 2, 1);
    check_gated(half_kinds[k], 5, 1536, 9, 2, 2);
    check_gated(half_kinds[k], 167, 512, 33, 4, 1);
    check_gated(half_kinds[k], 5, 1536, 9, 4, 2);
    check_gated(half_kinds[k], 35, 256, 65, 8, 1);
    check_gated(half_kinds[k], 21, 1536, 12, 8, 2);
  }
}
