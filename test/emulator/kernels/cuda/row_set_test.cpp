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
  launch("gated_matvec<" + weight.format + ", " + std::to_string(at_once) + ">",
         {{blocks_for(width, 8 / split), blocks_for(tokens, at_once) + 1}, {256}}, out.data(),
         x.data(), weight.data.data(), weight.row_stride, width, cols,
         RowSet{count.data(), nullptr}, 1u, split, codebooks().data());
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
    check_list(n_rows, rows, [&](float* out, RowSet set, u32 max_rows) {
      launch_decode_gemm(product(out, max_rows), set, 1, 1);
    });
    check_list(n_rows, rows, [&](float* out, RowSet set, u32 max_rows) {
      launch("matvec<" + weight.format + ", 4>",
             {{blocks_for(rows, 16), blocks_for(max_rows, 4)}, {256}}, out, x.data(),
             weight.data.data(), weight.row_stride, rows, cols, rows, set, epilogue, 1u,
             codebooks().data());
    });
  }
}

TEST(gated_matvec_is_matvec_and_glu) {
  for (const WeightKind& kind : fast_kinds) {
    check_gated(kind, 21, 512, 1, 1, 2);
    check_gated(kind, 5, 256, 9, 8, 1);
  }
}
