// The products of few tokens and the embedding, for every weight format.

#include "../../../csrc/common/quant/weight_type.h"
#include "operations.h"

namespace {

void check_matvec(const WeightKind& kind, u32 rows, u32 cols, u32 tokens, u32 at_once, u32 split) {
  Random random(kind.type * 7 + cols + tokens);
  const DeviceWeight weight = random_weight(random, kind, rows, cols);
  auto x = random_floats(random, u64(tokens + at_once) * cols);
  // A kernel may read rows past the last, but no result depends on them.
  std::fill(x.begin() + u64(tokens) * cols, x.end(), NAN);
  const u32 stride = rows + 3;
  const auto bias = random_floats(random, rows), residual = random_floats(random, tokens * stride);
  Buffer<float> out(tokens * stride);
  const Buffer<u32> n_rows = {tokens};
  launch(Matvec{.out = out.data(),
                .x = x.data(),
                .weight = &weight,
                .n_rows = n_rows.data(),
                .max_rows = tokens + at_once,
                .out_stride = stride,
                .epilogue = {bias.data(), residual.data(), 0.5f, 1},
                .at_once = at_once,
                .split = split});
  for (u32 t = 0; t < tokens; ++t) {
    std::vector<double> expected;
    for (u32 r = 0; r < rows; ++r) {
      const double product = plain_dot(weight.row(r), x.data() + t * cols, cols) + bias[r];
      expected.push_back(residual[t * stride + r] + 0.5 * product / (1 + std::exp(-product)));
    }
    const double rounding = matvec_rounding(kind);
    expect_near("matvec", out.data() + t * stride, expected.data(), rows, 3e-5 + 12 * rounding,
                1e-5 + rounding);
  }
}

void launch_embed(Buffer<float>& out, const Buffer<i32>& ids, const Buffer<u32>& n_tokens,
                  const DeviceWeight& weight, float scale, const float* x = nullptr,
                  u32 period = 1) {
  launch<Embed>(n_tokens[0] + 1,
                {.out = out.data(),
                 .ids = ids.data(),
                 .n_tokens = n_tokens.data(),
                 .weight = weight.data.data(),
                 .x = x,
                 .codebooks = codebooks().data()},
                {.row_stride = weight.row_stride,
                 .cols = weight.cols,
                 .scale = scale,
                 .period = period,
                 .rows = weight.rows,
                 .has_x = x != nullptr},
                "<" + weight.format + ">");
}

void check_embed(const WeightKind& kind, u32 cols) {
  Random random(kind.type + cols);
  const DeviceWeight weight = random_weight(random, kind, 3, cols);
  Buffer<float> out(2 * cols);
  const Buffer<i32> ids = {2, 0};
  const Buffer<u32> n_tokens = {2};
  launch_embed(out, ids, n_tokens, weight, 2.0f);
  for (u32 t = 0; t < 2; ++t) {
    std::vector<double> expected(cols);
    for (u32 i = 0; i < cols; ++i) expected[i] = 2.0 * weight.row(static_cast<u32>(ids[t]))[i];
    expect_near("embed", out.data() + t * cols, expected.data(), cols, 1e-7, 1e-6);
  }
}

// Ids of tokens whose type, the id over the period, is looked up and added.
void check_added_embedding(const WeightKind& kind, u32 cols) {
  Random random(kind.type + cols);
  const DeviceWeight weight = random_weight(random, kind, 3, cols);
  Buffer<float> x(2 * cols), out(2 * cols);
  for (u32 i = 0; i < 2 * cols; ++i) x[i] = static_cast<float>(i % 7) - 3;
  // The last row, and the first of a second round.
  const Buffer<i32> ids = {2 * 40 + 39, 3 * 40 + 7};
  const Buffer<u32> n_tokens = {2};
  launch_embed(out, ids, n_tokens, weight, 1.0f, x.data(), 40);
  for (u32 t = 0; t < 2; ++t) {
    std::vector<double> expected(cols);
    for (u32 i = 0; i < cols; ++i) expected[i] = x[t * cols + i] + weight.row(t == 0 ? 2 : 0)[i];
    expect_near("added embedding", out.data() + t * cols, expected.data(), cols, 1e-6, 1e-6);
  }
}

// Checks that a weight with rows beyond 4 GiB gives the same products as one with adjacent rows.
void check_far_rows(const WeightKind& kind) {
  Random random(kind.type);
  const u32 rows = 5, cols = 256, tokens = 3;
  const DeviceWeight weight = random_weight(random, kind, rows, cols);
  const DeviceWeight far = spread_rows(weight, u64(3) << 29);
  if (far.data.size() == 0) return;
  const auto x = random_floats(random, tokens * cols);
  const Buffer<u32> n_rows = {tokens};
  const Buffer<i32> ids = {4, 3, 0};
  const auto products = [&](const DeviceWeight& w, int operation) {
    const Epilogue epilogue = {nullptr, nullptr, 1, 0};
    Buffer<float> out(tokens * std::max(rows, cols));
    std::fill(out.begin(), out.end(), 0.0f);
    // Matvec of several tokens, and of one.
    if (operation == 0 || operation == 3) {
      launch(Matvec{.out = out.data(),
                    .x = x.data(),
                    .weight = &w,
                    .n_rows = n_rows.data(),
                    .max_rows = tokens,
                    .out_stride = rows,
                    .epilogue = epilogue,
                    .at_once = operation == 0 ? 4u : 1u,
                    .split = 1});
    } else if (operation == 1) {
      launch(Gemm{.out = out.data(),
                  .x = x.data(),
                  .weight = &w,
                  .n_rows = n_rows.data(),
                  .max_rows = tokens,
                  .out_stride = rows,
                  .epilogue = epilogue});
    } else {
      launch_embed(out, ids, n_rows, w, 1);
    }
    return out;
  };
  for (int operation = 0; operation < 4; ++operation) {
    if (operation == 1 && kind.type == 0) continue;  // not supported by matrix units
    const auto expected = products(weight, operation), actual = products(far, operation);
    for (size_t i = 0; i < actual.size(); ++i) EXPECT(actual[i] == expected[i]);
  }
}

void check_random_matvec(Random& random) {
  std::string name;
  const bool is_fast = random.below(2) == 0;
  const WeightKind kind = is_fast ? random.one_of(fast_kinds)
                                  : other_kind(random.one_of(other_types), name);
  const u32 unit = forge::find_weight_type(kind.type)->block_elements;
  const u32 at_once = is_fast ? 1u << random.below(4) : random.below(2) == 0 ? 1 : 4;
  check_matvec(kind, random.between(1, 40), unit * random.between(1, 1 + 1500 / unit),
               random.between(1, 10), at_once, 1u << random.below(4));
}

}  // namespace

TEST(products_with_rows_beyond_4_gib) {
  for (const WeightKind& kind : {fast_kinds[0], fast_kinds[1], fast_kinds[3], fast_kinds[5]}) {
    check_far_rows(kind);
  }
}
TEST_RANDOM(random_matvec, check_random_matvec, 40)
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
TEST(embed_all_types) {
  std::string name;
  for (const WeightKind& kind : fast_kinds) check_embed(kind, 2304);
  for (const u32 type : other_types) check_embed(other_kind(type, name), 512);
  for (int k = 0; k < 3; ++k) check_embed(fast_kinds[k], 77);
  for (int k = 0; k < 3; ++k) check_added_embedding(fast_kinds[k], 77);
}
