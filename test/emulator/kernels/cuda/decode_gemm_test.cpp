// The products of decoded tokens on tensor cores.

#include "../../../../csrc/common/quant/weight_type.h"
#include "../gemm_check.h"
#include "launch.h"

namespace {

// Launches a product in the same tile for any number of tokens; `split` blocks share its columns.
template <u32 at_once, u32 split = 1>
void multiply(const Gemm& op) {
  launch_decode_gemm({.out = op.out,
                      .x = op.x,
                      .weight = op.weight,
                      .n_rows = op.n_rows,
                      .max_rows = op.max_rows,
                      .out_stride = op.out_stride,
                      .epilogue = op.epilogue,
                      .at_once = at_once,
                      .split = split},
                     {op.n_rows, nullptr});
}
using Multiply = void (*)(const Gemm&);

// A product without bias and residual, of which two blocks share the columns.
Matvec plain_product(Buffer<float>& out, const Buffer<float>& x, const DeviceWeight& weight,
                     const Buffer<u32>& n_rows, u32 max_rows, u32 at_once) {
  return {.out = out.data(),
          .x = x.data(),
          .weight = &weight,
          .n_rows = n_rows.data(),
          .max_rows = max_rows,
          .out_stride = weight.rows,
          .epilogue = {nullptr, nullptr, 1, 0},
          .at_once = at_once,
          .split = 2};
}
constexpr Multiply kTiles[][2] = {{multiply<1>, multiply<1, 3>},
                                  {multiply<2>, multiply<2, 3>},
                                  {multiply<4>, multiply<4, 3>},
                                  {multiply<8>, multiply<8, 3>}};

void check_random(Random& random) {
  std::string name;
  const bool is_fast = random.below(3) != 0;
  const WeightKind kind = is_fast ? half_kinds[random.below(kHalfKinds)]
                                  : other_kind(random.one_of(other_types), name);
  const u32 unit = forge::find_weight_type(kind.type)->block_elements;
  check_gemm(kind, random.between(1, 150), unit * random.between(1, 1 + 2500 / unit),
             random.between(1, 70), kTiles[random.below(is_fast ? 4 : 2)][random.below(2)]);
}

}  // namespace

TEST_RANDOM(random_decode_gemm, check_random, 12)
TEST(decode_gemm_of_every_fast_format) {
  for (int k = 0; k < kHalfKinds; ++k) {
    check_gemm(half_kinds[k], 37, 1280, 2, multiply<1>);
    check_gemm(half_kinds[k], 37, 1280, 11, multiply<2, 2>);
    check_gemm(half_kinds[k], 70, 1280, 40, multiply<4, 2>);
    check_gemm(half_kinds[k], 70, 768, 66, multiply<8>);
  }
}
TEST(decode_gemm_of_odd_columns) {
  check_gemm(half_kinds[0], 3, 77, 5, multiply<2>);
  check_gemm(half_kinds[1], 3, 77, 5, multiply<2, 8>);
  check_gemm(half_kinds[0], 3, 77, 1, multiply<1, 2>);
  check_gemm(half_kinds[1], 17, 1031, 19, multiply<4, 2>);
  check_gemm(half_kinds[1], 17, 1031, 19, multiply<4>);
  // The last stage of a row, of 128 columns, has 32.
  for (int k = 0; k < kHalfKinds; ++k) {
    const bool has_short_blocks = half_kinds[k].type == 2 || half_kinds[k].type == 8;
    if (has_short_blocks) check_gemm(half_kinds[k], 17, 800, 6, multiply<2>);
  }
}
// Blocks with rings of weights, which share the tiles, have two or more each.
TEST(decode_gemm_of_several_tiles_a_block) {
  for (int k = 0; k < kHalfKinds; ++k) {
    check_gemm(half_kinds[k], 150, 1280, 2, multiply<1>);
    check_gemm(half_kinds[k], 150, 1280, 1, multiply<1, 3>);
    check_gemm(half_kinds[k], 350, 512, 7, multiply<2, 2>);
  }
}
TEST(decode_gemm_of_other_types) {
  std::string name;
  for (const u32 type : other_types) {
    check_gemm(other_kind(type, name), 20, 256, 9, multiply<2>);
    check_gemm(other_kind(type, name), 20, 256, 1, multiply<1>);
  }
}

// A norm before the product: compared with the norm of each row in float64, in each tile.
TEST(decode_gemm_with_a_norm) {
  for (const u32 cols : {77u, 1280u}) {
    for (int k = 0; k < (cols == 77 ? 2 : kHalfKinds); ++k) {
      Random random(static_cast<u64>(k));
      const u32 rows = 37, tokens = 11;
      const DeviceWeight weight = random_weight(random, half_kinds[k], rows, cols);
      const auto x = random_floats(random, tokens * cols, 40);
      const auto norm_weight = random_floats(random, cols, 2);
      const InputNorm norm = {.weight = norm_weight.data(), .eps = 3, .offset = 0.5f};
      const Buffer<u32> n_rows = {tokens};
      std::vector<double> normed(tokens * cols), expected(tokens * rows, 0.0);
      for (u32 t = 0; t < tokens; ++t) {
        double squares = 0;
        for (u32 i = 0; i < cols; ++i) squares += double(x[t * cols + i]) * x[t * cols + i];
        const double rms = std::sqrt(squares / cols + 3.0);
        for (u32 i = 0; i < cols; ++i) {
          normed[t * cols + i] = x[t * cols + i] / rms * (double(norm_weight[i]) + 0.5);
        }
      }
      for (u32 i = 0; i < tokens * rows; ++i) {
        for (u32 c = 0; c < cols; ++c) {
          expected[i] += normed[i / rows * cols + c] * double(weight.row(i % rows)[c]);
        }
      }
      std::vector<float> first;
      for (const u32 at_once : {1u, 2u, 4u}) {
        Buffer<float> out(tokens * rows);
        launch_decode_gemm(plain_product(out, x, weight, n_rows, tokens, at_once),
                           {n_rows.data(), nullptr}, norm);
        expect_near("decode_gemm with a norm", out, expected,
                    40 * product_rounding(half_kinds[k]), product_rounding(half_kinds[k]));
        // A token has the same bits in every tile.
        if (first.empty()) first.assign(out.begin(), out.end());
        EXPECT(std::equal(first.begin(), first.end(), out.data()));
      }
    }
  }
}

// Tokens beyond the range of F16 have divisors of their own.
TEST(decode_gemm_of_a_token_is_the_same_in_any_company) {
  for (int k = 0; k < kHalfKinds; ++k) {
    Random random(static_cast<u64>(k));
    const u32 rows = 37, cols = 1280, tokens = 65;
    const DeviceWeight weight = random_weight(random, half_kinds[k], rows, cols);
    auto x = random_floats(random, tokens * cols);
    for (u32 i = 0; i < cols; ++i) x[cols * (tokens - 2) + i] *= 3e5f;
    const Buffer<u32> all = {tokens};
    Buffer<float> expected(tokens * rows);
    launch_decode_gemm(plain_product(expected, x, weight, all, tokens, 8), {all.data(), nullptr});
    // The last tokens, in each tile.
    for (const u32 at_once : {1u, 2u, 4u}) {
      const Buffer<u32> three = {3};
      Buffer<u32> last = {tokens - 1, tokens - 2, 0};
      Buffer<float> out(tokens * rows);
      launch_decode_gemm(plain_product(out, x, weight, all, 3, at_once),
                         {three.data(), last.data()});
      for (const u32 token : last) {
        for (u32 i = token * rows; i < (token + 1) * rows; ++i) EXPECT(out[i] == expected[i]);
      }
    }
  }
}
