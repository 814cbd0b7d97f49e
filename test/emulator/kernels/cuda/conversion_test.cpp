// Conversions before and after products by a library or by tensor cores, and dequantized weights.

#include "../../../../csrc/common/float16.h"
#include "launch.h"

namespace {

void check_dequantize(const WeightKind& kind, u32 cols) {
  Random random(kind.type + cols);
  const u32 rows = 3, padded = (cols + 63) / 64 * 64;
  const DeviceWeight weight = random_weight(random, kind, rows, cols);
  Buffer<float> out((rows - 1) * padded);
  launch("dequantize<" + weight.format + ", float>", {{blocks_for(padded, 4096), rows - 1}, {128}},
         cuda_args::Dequantize<const void*>{.out = out.data(),
                                            .weight = weight_rows(weight, rows - 1),
                                            .padded_cols = padded});
  for (u32 r = 0; r + 1 < rows; ++r) {
    std::vector<double> expected(padded, 0.0);
    for (u32 i = 0; i < cols; ++i) expected[i] = weight.row(r)[i];
    expect_near("dequantize", out.data() + r * padded, expected.data(), padded, 1e-7, 1e-6);
  }
}

// Converts rows of x to `type`; one block more finds no row.
HalfRows convert(const std::string& type, const float* x, u32 n_rows, u32 cols, u32 padded,
                 const InputNorm& norm, u32 chunk_cols = 0) {
  const Buffer<u32> count = {n_rows};
  HalfRows to = {Buffer<u16>(n_rows * padded), Buffer<float>(n_rows), padded};
  launch("convert_rows<" + type + ">", {{n_rows + 1}, {256}},
         cuda_args::ConvertRows<const void*>{.out = to.data.data(),
                                             .scale = to.scale.data(),
                                             .x = x,
                                             .norm = norm,
                                             .set = {count.data(), nullptr},
                                             .cols = cols,
                                             .padded_cols = padded,
                                             .chunk_cols = chunk_cols});
  return to;
}

}  // namespace

TEST(dequantize_all_types) {
  std::string name;
  for (const WeightKind& kind : fast_kinds) check_dequantize(kind, 2304);
  for (const u32 type : other_types) check_dequantize(other_kind(type, name), 512);
  for (int k = 0; k < 3; ++k) check_dequantize(fast_kinds[k], 77);
}

TEST(epilogue_of_a_library_product) {
  Random random(8);
  const u32 rows = 2, cols = 1030, stride = 1500;
  const auto product = random_floats(random, rows * cols), bias = random_floats(random, cols);
  const auto residual = random_floats(random, rows * stride);
  const Buffer<float> scale = {1, 4};
  const Buffer<u32> n_rows = {rows};
  const Epilogue e = {bias.data(), residual.data(), 0.5f, 1};
  Buffer<float> out(rows * stride);
  const Buffer<u32> swapped = {1, 0};
  using LibraryProduct = cuda_args::LibraryProduct<const void*>;
  launch("epilogue", {{2, rows}, {256}},
         LibraryProduct{.out = out.data(),
                        .product = product.data(),
                        .x_scale = scale.data(),
                        .set = {n_rows.data(), swapped.data()},
                        .cols = cols,
                        .product_stride = cols},
         epilogue(e, stride));
  for (u32 r = 0; r < rows; ++r) {
    std::vector<double> expected;
    for (u32 i = 0; i < cols; ++i) {
      const double p = double(product[r * cols + i]) * scale[r] + bias[i];
      expected.push_back(residual[swapped[r] * stride + i] + 0.5 * plain_activation(1, p));
    }
    expect_near("epilogue", out.data() + swapped[r] * stride, expected.data(), cols, 1e-6, 1e-5);
  }
  // In place, where only the scale applies.
  Buffer<float> own(rows * cols);
  std::copy_n(product.data(), rows * cols, own.data());
  launch("epilogue", {{1, rows}, {256}},
         LibraryProduct{.out = own.data(),
                        .product = own.data(),
                        .x_scale = scale.data(),
                        .set = {n_rows.data(), nullptr},
                        .cols = cols,
                        .product_stride = cols},
         epilogue({nullptr, nullptr, 1, 0}, cols));
  for (u32 i = 0; i < rows * cols; ++i) EXPECT(own[i] == product[i] * scale[i / cols]);
}

TEST(convert_rows_moves_rows_into_the_range_of_f16) {
  const u32 cols = 5, padded = 64, rows = 7;
  Buffer<float> x = {1,        -2,     3.5f,    65000,  0,       // the largest number is too large
                     1,        1e6f,   -3e7f,   0.25f,  70000,   //
                     0,        1,      -32767,  0,      1e-3f,   // in range
                     0x1p-6f,  0,      -1e-5f,  1e-7f,  0,       //
                     0,        0,      0,       0,      0,       //
                     0.01562f, 1e-3f,  0,       -1e-6f, 0,       // too small
                     1e-30f,   2e-30f, 0,       -3e-31f, 0};
  const float scales[rows] = {2, 1024, 1, 1, 1, 0x1p-21f, 0x1p-113f};
  for (const char* type : {"f16", "bf16"}) {
    const bool half = std::string(type) == "f16";
    const auto [out, scale, _] = convert(type, x.data(), rows, cols, padded, {});
    for (u32 r = 0; r < rows; ++r) {
      EXPECT(scale[r] == (half ? scales[r] : 1));
      for (u32 i = 0; i < padded; ++i) {
        const u16 bits = out[r * padded + i];
        const double value = half ? forge::f16_to_f32(bits) : forge::bf16_to_f32(bits);
        const double wanted = i < cols ? x[r * cols + i] : 0.0;
        const double step = half ? std::ldexp(scale[r], -24) : 0;
        EXPECT(std::abs(value * scale[r] - wanted) <=
               std::abs(wanted) / (half ? 2048 : 256) + step);
      }
    }
  }
}

// In the order of chunks, a unit of eight has two columns of each of four chunks.
TEST(convert_rows_orders_columns_by_chunks) {
  Random random(8);
  const u32 cols = 160, padded = 256;
  const auto x = random_floats(random, cols), weight = random_floats(random, cols, 2);
  const auto converted = [&](u32 chunk_cols) {
    const InputNorm norm = {.weight = weight.data(), .eps = 0.5f, .offset = 1};
    return convert("f16", x.data(), 1, cols, padded, norm, chunk_cols).data;
  };
  const Buffer<u16> plain = converted(0);
  for (const u32 chunk : {16u, 32u}) {
    const Buffer<u16> ordered = converted(chunk);
    for (u32 i = 0; i < padded; ++i) {
      // Product `of`, of four chunks, holds four columns of each.
      const u32 group = i / (4 * chunk), of = i % (4 * chunk) / 16, place = i % 16;
      const u32 lane = place % 8 / 2, column = 4 * of + place % 2 + place / 8 * 2;
      EXPECT(ordered[i] == plain[group * 4 * chunk + lane * chunk + column]);
    }
  }
}

// Rows have a scale only if they are beyond F16 after the norm.
TEST(convert_rows_normalizes) {
  Random random(7);
  const u32 rows = 3, cols = 300, padded = 320;
  auto x = random_floats(random, rows * cols, 9);
  for (u32 i = 0; i < cols; ++i) x[i] *= 1e6f;
  const auto weight = random_floats(random, cols, 2);
  const InputNorm norm = {.weight = weight.data(), .eps = 0.5f, .offset = 0.25f};
  for (const char* type : {"f16", "bf16"}) {
    const bool half = std::string(type) == "f16";
    const auto [out, scale, _] = convert(type, x.data(), rows, cols, padded, norm);
    for (u32 r = 0; r < rows; ++r) {
      double squares = 0;
      for (u32 i = 0; i < cols; ++i) squares += double(x[r * cols + i]) * x[r * cols + i];
      const double rms = std::sqrt(squares / cols + 0.5);
      EXPECT(scale[r] == 1);
      for (u32 i = 0; i < cols; ++i) {
        const u16 bits = out[r * padded + i];
        const double value = half ? forge::f16_to_f32(bits) : forge::bf16_to_f32(bits);
        const double wanted = x[r * cols + i] / rms * (double(weight[i]) + 0.25);
        const double allowed = std::abs(wanted) / (half ? 2000 : 250) + 1e-6;
        EXPECT(std::abs(value * scale[r] - wanted) <= allowed);
      }
    }
  }
}

// Blocks of 256 and of 512 threads add the squares of a row in one order.
TEST(products_convert_rows_as_convert_rows_does) {
  const u32 tokens = 5, rows = 400, cols = 4400;
  const Buffer<u32> count = {tokens}, list = {2, 0, 1, 4, 3};
  const RowSet set = {count.data(), list.data()};
  for (const WeightKind& kind : {fast_kinds[1], fast_kinds[2]}) {
    Random random(kind.type);
    const DeviceWeight weight = random_weight(random, kind, rows, cols);
    const auto x = random_floats(random, tokens * cols), scale = random_floats(random, cols, 2);
    for (const InputNorm& norm : {InputNorm{}, InputNorm{scale.data(), 0.5f, 1}}) {
      const HalfRows expected = convert_rows(weight, x.data(), set, tokens, 1, norm);
      for (const u32 at_once : {2u, 8u}) {
        const DecodeTile tile = decode_tile(weight, at_once);
        const ConvertedByProduct own(weight, x.data(), set, tokens, norm);
        const auto product = [&](const ProductRows& from, const SharedConversion& conversion) {
          Buffer<float> out(tokens * rows);
          with_tiling(tile, tokens, rows, [&](emulator::Dim3 grid, const Tiling& tiling) {
            emulator::Launch shape{grid, {tile.threads}, tile.shared};
            shape.at_once = true;  // some blocks wait for the rows of others
            launch(decode_instance("decode_gemm", weight, tile), shape,
                   ProductOperands{.out = out.data(),
                                   .x = from,
                                   .weight = weight_rows(weight, rows),
                                   .set = set},
                   epilogue({nullptr, nullptr, 1, 0}, rows), tiling, conversion);
          });
          return out;
        };
        const Buffer<float> out = product(own.half.rows(), own.conversion);
        const Buffer<float> apart = product(expected.rows(), {});
        for (u32 i = 0; i < tokens * rows; ++i) EXPECT(out[i] == apart[i]);
        for (u32 i = 0; i < tokens * own.half.padded_cols; ++i) {
          EXPECT(own.half.data[i] == expected.data[i]);
        }
        for (u32 i = 0; i < tokens; ++i) EXPECT(own.half.scale[i] == expected.scale[i]);
      }
    }
  }
}

TEST(convert_gated_rows_is_glu_and_convert_rows) {
  Random random(11);
  const u32 rows = 3, padded = 384;
  const Buffer<u32> count = {rows}, list = {2, 0, 1};
  for (const u32 cols : {300u, 320u}) {
    const auto x = random_floats(random, rows * 2 * cols, 3);
    Buffer<float> gated(rows * cols);
    launch<Glu>(rows, {.out = gated.data(), .x = x.data(), .n_rows = count.data()},
                {.out_cols = cols, .width = cols, .unit = FORGE_SILU});
    for (const char* type : {"f16", "bf16"}) {
      for (const u32 chunk_cols : {0u, 16u, 32u}) {
        if (chunk_cols > 0 && cols % 32 != 0) continue;
        HalfRows own = {Buffer<u16>(rows * padded), Buffer<float>(rows), padded};
        HalfRows apart = {Buffer<u16>(rows * padded), Buffer<float>(rows), padded};
        const auto arguments = [&](HalfRows& to, const float* from) {
          return cuda_args::ConvertRows<const void*>{.out = to.data.data(),
                                                     .scale = to.scale.data(),
                                                     .x = from,
                                                     .norm = {},
                                                     .set = {count.data(), list.data()},
                                                     .cols = cols,
                                                     .padded_cols = padded,
                                                     .chunk_cols = chunk_cols};
        };
        const std::string of_type = std::string("<") + type + ">";
        launch("convert_rows" + of_type, {{rows + 1}, {256}}, arguments(apart, gated.data()));
        launch("convert_gated_rows" + of_type, {{rows + 1}, {256}, padded * 4},
               arguments(own, x.data()), u32{FORGE_SILU});
        for (u32 i = 0; i < rows * padded; ++i) EXPECT(own.data[i] == apart.data[i]);
        for (u32 i = 0; i < rows; ++i) EXPECT(own.scale[i] == apart.scale[i]);
      }
    }
  }
}

TEST(cast_rows_of_tiles_only) {
  Random random(12);
  const u32 cols = 2 * 524, rows = 30;
  const Buffer<QueryTile> tiles = {{2, 1, 0, 0, 1}, {9, 17, 1, 4, 21}};
  const Buffer<u32> n_tiles = {2};
  const auto in = random_floats(random, rows * cols, 3);
  Buffer<u16> half(rows * cols);
  Buffer<float> out(rows * cols);
  const emulator::Launch shape{{blocks_for(cols, 1024), 4, 8}, {256}};
  const auto cast = [&](const char* instance, const void* to, const void* from) {
    launch(instance, shape,
           cuda_args::CastRows<const void*>{.out = to,
                                            .in = from,
                                            .tiles = tiles.data(),
                                            .n_tiles = n_tiles.data(),
                                            .cols = cols});
  };
  cast("cast_rows<float, bf16>", half.data(), in.data());
  cast("cast_rows<bf16, float>", out.data(), half.data());
  for (u32 row = 0; row < rows; ++row) {
    const bool inside = row == 2 || (row >= 9 && row < 26);
    for (u32 i = row * cols; i < (row + 1) * cols; ++i) {
      EXPECT(half[i] == (inside ? forge::f32_to_bf16(in[i]) : 0xffff));
      EXPECT(inside ? out[i] == forge::bf16_to_f32(half[i]) : out[i] != out[i]);
    }
  }
}
