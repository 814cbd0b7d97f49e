// The products of few tokens, dequantisation and the embedding, for every weight format.

#include "weights.h"

namespace {

struct Epilogue {
  const float* bias;
  const float* residual;
  float alpha;
  u32 activation;
};

void check_matvec(const WeightKind& kind, u32 rows, u32 cols, u32 tokens, u32 at_once, u32 split) {
  Random random(kind.type * 7 + cols + tokens);
  const DeviceWeight weight = random_weight(random, kind, rows, cols);
  const auto x = random_floats(random, u64(tokens) * cols);
  const u32 stride = rows + 3;
  const auto bias = random_floats(random, rows), residual = random_floats(random, tokens * stride);
  Buffer<float> out(tokens * stride);
  const Buffer<u32> n_rows = {tokens};
  const Epilogue epilogue = {bias.data(), residual.data(), 0.5f, 1};
  const u32 per_block = 8 / split * (weight.format[0] == 'B' ? 1 : 2);
  launch("matvec<" + weight.format + ", " + std::to_string(at_once) + ">",
         {{blocks_for(rows, per_block), blocks_for(tokens, at_once) + 1}, {256}}, out.data(),
         x.data(), weight.data.data(), weight.row_stride, rows, cols, stride, n_rows.data(),
         epilogue, split, codebooks().data());
  for (u32 t = 0; t < tokens; ++t) {
    std::vector<double> expected;
    for (u32 r = 0; r < rows; ++r) {
      const double product = plain_dot(weight.row(r), x.data() + t * cols, cols) + bias[r];
      expected.push_back(residual[t * stride + r] + 0.5 * product / (1 + std::exp(-product)));
    }
    expect_near("matvec", out.data() + t * stride, expected.data(), rows, 3e-5, 1e-5);
  }
}

void check_dequantize(const WeightKind& kind, u32 cols) {
  Random random(kind.type + cols);
  const u32 rows = 3, padded = (cols + 63) / 64 * 64;
  const DeviceWeight weight = random_weight(random, kind, rows, cols);
  Buffer<float> out((rows - 1) * padded), embedded(2 * cols);
  launch("dequantize<" + weight.format + ", float>", {{blocks_for(padded, 2048), rows - 1}, {128}},
         out.data(), weight.data.data(), weight.row_stride, 1u, rows - 1, cols, padded,
         codebooks().data());
  const Buffer<i32> ids = {2, 0};
  const Buffer<u32> n_tokens = {2};
  launch("embed<" + weight.format + ">", {{3}, {128}}, embedded.data(), ids.data(), n_tokens.data(),
         weight.data.data(), weight.row_stride, cols, 2.0f, codebooks().data());
  for (u32 r = 0; r + 1 < rows; ++r) {
    std::vector<double> expected(padded, 0.0);
    for (u32 i = 0; i < cols; ++i) expected[i] = weight.row(r + 1)[i];
    expect_near("dequantize", out.data() + r * padded, expected.data(), padded, 1e-7, 1e-6);
    for (u32 i = 0; i < cols; ++i) expected[i] = 2.0 * weight.row(static_cast<u32>(ids[r]))[i];
    expect_near("embed", embedded.data() + r * cols, expected.data(), cols, 1e-7, 1e-6);
  }
}

}  // namespace

TEST(matvec_of_one_token) {
  for (const WeightKind& kind : fast_kinds) check_matvec(kind, 19, 256, 1, 1, 1);
}
TEST(matvec_of_wide_rows_split_in_eight) {
  for (const WeightKind& kind : fast_kinds) check_matvec(kind, 5, 256 * 37, 1, 1, 8);
}
TEST(matvec_of_three_tokens) {
  for (const WeightKind& kind : fast_kinds) check_matvec(kind, 9, 512, 3, 2, 4);
}
TEST(matvec_of_seven_tokens) {
  for (const WeightKind& kind : fast_kinds) check_matvec(kind, 6, 768, 7, 4, 2);
}
TEST(matvec_of_nine_tokens) {
  for (const WeightKind& kind : fast_kinds) check_matvec(kind, 4, 256, 9, 8, 4);
}
TEST(matvec_of_odd_columns) {
  for (const u32 cols : {1u, 5u, 172u, 4099u}) {
    for (int k = 0; k < 3; ++k) check_matvec(fast_kinds[k], 3, cols, 2, 1, 1);
  }
}
TEST(matvec_of_other_types) {
  std::string name;
  for (const u32 type : other_types) check_matvec(other_kind(type, name), 5, 1024, 3, 4, 2);
}
TEST(matvec_of_other_types_one_token) {
  std::string name;
  for (const u32 type : other_types) check_matvec(other_kind(type, name), 5, 256, 1, 1, 1);
}
TEST(dequantize_and_embed_all_types) {
  std::string name;
  for (const WeightKind& kind : fast_kinds) check_dequantize(kind, 2304);
  for (const u32 type : other_types) check_dequantize(other_kind(type, name), 512);
  for (int k = 0; k < 3; ++k) check_dequantize(fast_kinds[k], 77);
}
