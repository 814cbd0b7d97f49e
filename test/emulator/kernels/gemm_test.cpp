// The products on tensor cores.

#include "weights.h"

namespace {

struct Epilogue {
  const float* bias;
  const float* residual;
  float alpha;
  u32 activation;
};

// `name` is gemm or decode_gemm.
void check(const std::string& name, const WeightKind& kind, u32 rows, u32 cols, u32 tokens) {
  Random random(kind.type + rows + tokens);
  const DeviceWeight weight = random_weight(random, kind, rows, cols);
  auto x = random_floats(random, u64(tokens) * cols);
  // One token beyond the range of F16, which its scale brings back.
  for (u32 i = 0; i < cols; ++i) x[(tokens - 1) * cols + i] *= 1e6f;
  const u32 padded = (cols + 63) / 64 * 64, stride = rows + 1;
  const std::string type = weight.format == "FormatBF16" ? "bf16" : "f16";
  const Buffer<u32> n_rows = {tokens};
  Buffer<u16> halves(tokens * padded);
  Buffer<float> scale(tokens), out(tokens * stride);
  const auto bias = random_floats(random, rows), residual = random_floats(random, tokens * stride);
  launch("convert_rows<" + type + ">", {{tokens}, {256}}, halves.data(), scale.data(), x.data(),
         n_rows.data(), cols, padded);
  const Epilogue epilogue = {bias.data(), residual.data(), 2.0f, 0};
  const bool decode = name == "decode_gemm";
  const emulator::Dim3 grid = {blocks_for(rows, decode ? 16 : 128),
                               blocks_for(tokens, decode ? 16 : 64) + 1};
  launch(name + "<" + weight.format + ", " + type + ">", {grid, {256}, decode ? 0u : 55296u},
         out.data(), halves.data(), scale.data(), weight.data.data(), weight.row_stride, rows, cols,
         padded, stride, n_rows.data(), epilogue, codebooks().data());
  // Both operands are rounded to 11 (8) bits; the errors of a sum of `cols` products add up
  // randomly.
  const double rounding = type == "f16" ? 6e-4 : 5e-3;
  for (u32 t = 0; t < tokens; ++t) {
    const double size = t + 1 == tokens ? 1e6 : 1;
    std::vector<double> expected;
    for (u32 r = 0; r < rows; ++r) {
      expected.push_back(residual[t * stride + r] +
                         2.0 * (plain_dot(weight.row(r), x.data() + t * cols, cols) + bias[r]));
    }
    expect_near("product", out.data() + t * stride, expected.data(), rows, 12 * rounding * size,
                rounding);
  }
}

const WeightKind* half_kinds = fast_kinds + 1;  // without F32
constexpr int kHalfKinds = 6;

}  // namespace

TEST(gemm_of_every_fast_format) {
  for (int k = 0; k < kHalfKinds; ++k) check("gemm", half_kinds[k], 131, 512, 66);
}
TEST(gemm_of_odd_columns) {
  check("gemm", half_kinds[0], 3, 77, 5);
  check("gemm", half_kinds[1], 130, 172, 1);
}
TEST(gemm_of_other_types) {
  std::string name;
  for (const u32 type : other_types) check("gemm", other_kind(type, name), 40, 256, 17);
}
TEST(decode_gemm_of_every_fast_format) {
  for (int k = 0; k < kHalfKinds; ++k) check("decode_gemm", half_kinds[k], 37, 1280, 16);
}
TEST(decode_gemm_of_odd_columns) {
  check("decode_gemm", half_kinds[0], 3, 77, 5);
  check("decode_gemm", half_kinds[1], 17, 1031, 19);
}
TEST(decode_gemm_of_other_types) {
  std::string name;
  for (const u32 type : other_types) check("decode_gemm", other_kind(type, name), 20, 256, 9);
}
