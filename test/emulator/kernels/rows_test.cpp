// Kernels that treat rows element by element.

#include "../../../csrc/common/float16.h"
#include "support.h"

namespace {

double plain_activation(u32 activation, double x) {
  switch (activation) {
    case 1: return x / (1 + std::exp(-x));
    case 2: return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case 3: return 0.5 * x * (1 + std::erf(x * 0.7071067811865476));
    default: return x;
  }
}

double plain_unit(u32 unit, double gate, double up) {
  if (unit != 4) return plain_activation(unit, gate) * up;
  const double g = std::min(gate, 7.0), u = std::clamp(up, -7.0, 7.0);
  return (u + 1) * g / (1 + std::exp(-1.702 * g));
}

void check_glu(u32 rows, u32 groups, u32 width, u32 unit) {
  Random random(width + unit);
  const u32 cols = groups * width;
  // Far enough for the limits of the clamped unit.
  const auto x = random_floats(random, u64(rows) * 2 * cols, 4);
  Buffer<float> out(u64(rows) * cols);
  const Buffer<u32> n_rows = {rows};
  launch("glu", {{blocks_for(cols, 1024), rows + 1}, {256}}, out.data(), x.data(), n_rows.data(),
         cols, width, unit);
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

TEST(fused_residual_rms_norm_of_both_kinds) {
  Random random(5);
  const u32 rows = 2, cols = 301;
  const auto x = random_floats(random, rows * cols), residual = random_floats(random, rows * cols);
  const auto x_weight = random_floats(random, cols), weight = random_floats(random, cols);
  const Buffer<u32> n_rows = {rows};
  for (const bool norm_x : {false, true}) {
    Buffer<float> sum(rows * cols), out(rows * cols);
    launch("fused_residual_rms_norm", {{rows}, {256}, cols * 4}, out.data(), sum.data(), x.data(),
           norm_x ? x_weight.data() : nullptr, residual.data(), weight.data(), n_rows.data(), cols,
           1e-5f, 1.0f, 1e-6f, 0.0f);
    std::vector<double> sums, outs;
    for (u32 r = 0; r < rows; ++r) {
      double squares = 0, next_squares = 0;
      for (u32 i = 0; i < cols; ++i) squares += double(x[r * cols + i]) * x[r * cols + i];
      for (u32 i = 0; i < cols; ++i) {
        const double normed =
            norm_x ? x[r * cols + i] / std::sqrt(squares / cols + 1e-5) * (x_weight[i] + 1.0)
                   : x[r * cols + i];
        sums.push_back(residual[r * cols + i] + normed);
        next_squares += sums.back() * sums.back();
      }
      for (u32 i = 0; i < cols; ++i) {
        outs.push_back(sums[r * cols + i] / std::sqrt(next_squares / cols + 1e-6) * weight[i]);
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
  for (float& value : x) value += 50;  // a mean that would swallow a one-pass variance
  const auto weight = random_floats(random, cols), bias = random_floats(random, cols);
  const Buffer<u32> n_rows = {rows};
  for (const bool with_bias : {false, true}) {
    Buffer<float> out(rows * cols);
    launch("layer_norm", {{rows}, {256}}, out.data(), x.data(), weight.data(),
           with_bias ? bias.data() : nullptr, n_rows.data(), cols, 1e-5f);
    std::vector<double> expected;
    for (u32 r = 0; r < rows; ++r) {
      double mean = 0, variance = 0;
      for (u32 i = 0; i < cols; ++i) mean += x[r * cols + i] / double(cols);
      for (u32 i = 0; i < cols; ++i) variance += std::pow(x[r * cols + i] - mean, 2) / cols;
      for (u32 i = 0; i < cols; ++i) {
        expected.push_back((x[r * cols + i] - mean) / std::sqrt(variance + 1e-5) * weight[i] +
                           (with_bias ? bias[i] : 0));
      }
    }
    expect_near("layer_norm", out, expected, 2e-5, 2e-5);
  }
}

TEST(gather_outputs_and_softcap) {
  Random random(7);
  const u32 cols = 1100;
  const auto x = random_floats(random, 4 * cols, 40);
  const Buffer<i32> wanted = {3, 0, 3};
  const Buffer<u32> n = {3};
  Buffer<float> out(3 * cols), capped(3 * cols);
  launch("gather_outputs", {{2, 5}, {256}}, out.data(), x.data(), wanted.data(), n.data(), cols);
  launch("softcap", {{2, 5}, {256}}, capped.data(), out.data(), n.data(), cols, 30.0f);
  std::vector<double> expected;
  for (u32 o = 0; o < 3; ++o) {
    for (u32 i = 0; i < cols; ++i) {
      EXPECT(out[o * cols + i] == x[wanted[o] * cols + i]);
      expected.push_back(30 * std::tanh(x[wanted[o] * cols + i] / 30.0));
    }
  }
  expect_near("softcap", capped, expected, 1e-5, 1e-6);
}

TEST(epilogue_of_a_library_product) {
  Random random(8);
  const u32 rows = 2, cols = 1030, stride = 1500;
  const auto product = random_floats(random, rows * cols), bias = random_floats(random, cols);
  const auto residual = random_floats(random, rows * stride);
  const Buffer<float> scale = {1, 4};
  const Buffer<u32> n_rows = {rows};
  struct {
    const float* bias;
    const float* residual;
    float alpha;
    u32 activation;
  } e = {bias.data(), residual.data(), 0.5f, 1};
  Buffer<float> out(rows * stride);
  launch("epilogue", {{2, rows}, {256}}, out.data(), product.data(), scale.data(), n_rows.data(),
         cols, stride, e);
  for (u32 r = 0; r < rows; ++r) {
    std::vector<double> expected;
    for (u32 i = 0; i < cols; ++i) {
      const double p = double(product[r * cols + i]) * scale[r] + bias[i];
      expected.push_back(residual[r * stride + i] + 0.5 * plain_activation(1, p));
    }
    expect_near("epilogue", out.data() + r * stride, expected.data(), cols, 1e-6, 1e-5);
  }
}

TEST(convert_rows_scales_only_what_f16_cannot_hold) {
  const u32 cols = 5, padded = 64;
  Buffer<float> x = {1, -2, 3.5f, 65000, 0, 1, 1e6f, -3e7f, 0.25f, 70000};
  const Buffer<u32> n_rows = {2};
  for (const char* name : {"convert_rows<f16>", "convert_rows<bf16>"}) {
    const bool half = std::string(name) == "convert_rows<f16>";
    Buffer<u16> out(2 * padded);
    Buffer<float> scale(2);
    launch(name, {{3}, {128}}, out.data(), scale.data(), x.data(), n_rows.data(), cols, padded);
    for (u32 r = 0; r < 2; ++r) {
      for (u32 i = 0; i < padded; ++i) {
        const u16 bits = out[r * padded + i];
        const double value = half ? forge::f16_to_f32(bits) : forge::bf16_to_f32(bits);
        const double wanted = i < cols ? x[r * cols + i] : 0.0;
        const double step = half ? std::ldexp(scale[r], -24) : 0;
        EXPECT(std::abs(value * scale[r] - wanted) <=
               std::abs(wanted) / (half ? 2048 : 256) + step);
      }
    }
    EXPECT(!half || (scale[0] == 2 && scale[1] == 1024));
    EXPECT(half || (scale[0] == 1 && scale[1] == 1));
  }
}

TEST(cast_rows_of_tiles_only) {
  struct Tile {
    u32 first_row, n_queries, sequence, first_position, end;
  };
  Random random(12);
  const u32 cols = 2 * 524, rows = 30;
  const Buffer<Tile> tiles = {{2, 1, 0, 0, 1}, {9, 17, 1, 4, 21}};
  const Buffer<u32> n_tiles = {2};
  const auto in = random_floats(random, rows * cols, 3);
  Buffer<u16> half(rows * cols);
  Buffer<float> out(rows * cols);
  const emulator::Launch shape{{blocks_for(cols, 1024), 4, 8}, {256}};
  launch("cast_rows<float, bf16>", shape, half.data(), in.data(), tiles.data(), n_tiles.data(), cols);
  launch("cast_rows<bf16, float>", shape, out.data(), half.data(), tiles.data(), n_tiles.data(), cols);
  for (u32 row = 0; row < rows; ++row) {
    const bool inside = row == 2 || (row >= 9 && row < 26);
    for (u32 i = row * cols; i < (row + 1) * cols; ++i) {
      EXPECT(half[i] == (inside ? forge::f32_to_bf16(in[i]) : 0xffff));
      EXPECT(inside ? out[i] == forge::bf16_to_f32(half[i]) : out[i] != out[i]);
    }
  }
}
