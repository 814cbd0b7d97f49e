#include <algorithm>

#include "operations.h"

namespace {

struct Case {
  u32 n_heads, n_kv_heads, k_dim, v_dim, page_tokens;
  u32 q_norm_width, k_norm_width;  // 0: no norm
  u32 n_freqs;                     // 0: no rotation
  u32 interleaved;
  bool values_in_keys = false;
};

// Of the norms; eps is large enough to show.
constexpr float kEps = 0.05f, kOffset = 0.75f;

// A head normalized and rotated in double.
std::vector<double> plain_head(const float* all, u32 n_heads, u32 head, u32 dim,
                               const float* weight, u32 width, const float* angles, u32 n,
                               u32 interleaved, bool values_in_keys) {
  std::vector<double> x(all + head * dim, all + (head + 1) * dim);
  if (width > 0) {
    const u32 first = width == dim ? head * dim : 0, count = width == dim ? dim : n_heads * dim;
    double squares = 0;
    for (u32 i = first; i < first + count; ++i) squares += double(all[i]) * all[i];
    for (u32 i = 0; i < dim; ++i) {
      x[i] *= (weight[width == dim ? i : head * dim + i] + double(kOffset)) /
              std::sqrt(squares / count + kEps);
    }
  }
  double* turned = x.data() + (values_in_keys ? dim - 2 * n : 0);
  for (u32 i = 0; i < n; ++i) {
    double& a = turned[interleaved ? 2 * i : i];
    double& b = turned[interleaved ? 2 * i + 1 : i + n];
    const double rotated = a * angles[i] - b * angles[n + i];
    b = a * angles[n + i] + b * angles[i];
    a = rotated;
  }
  return x;
}

// Allowed error of a stored number. In Q8_0 it is half a step, where 127 steps are the largest of
// 32 neighbours, plus the rounding of the step to F16. In Q4_0 it is a step of eight: 8 steps with
// the other sign do not exist.
double slack(const KvType& type, const std::vector<double>& row, size_t i) {
  if (!is_scaled(type)) return 2e-6 + 2 * type.tolerance * std::abs(row[i]);
  double largest = 0;
  for (size_t n = i / 32 * 32; n < std::min(row.size(), i / 32 * 32 + 32); ++n) {
    largest = std::max(largest, std::abs(row[n]));
  }
  return largest * ((type.bits == 8 ? 0.5 / 127 : 1.0 / 8) + 6e-4) + 1e-5;
}

void check(const KvType& type, const Case& c) {
  Random random(c.k_dim * 100 + c.n_heads);
  const std::vector<u32> lengths = {c.page_tokens * 2 + 1, 3, c.page_tokens * 2 + 1};
  // The first slot of a page, a middle one, and the last.
  const Buffer<i32> positions = {static_cast<i32>(2 * c.page_tokens), 2,
                                 static_cast<i32>(c.page_tokens - 1), -1};
  const Buffer<i32> sequence_of = {0, 1, 0, -1};
  Buffer<RowCopy> copies = {{0, 2}, {2, 2}};
  const Buffer<u32> n_copies = {2};
  // Inputs have room for one token more.
  const u32 tokens = 3, most = 4;
  const Sequences sequences(random, lengths, c.page_tokens);
  Pages pages(type, sequences.n_pages, c.page_tokens, c.n_kv_heads, c.k_dim, c.v_dim,
              c.values_in_keys);
  const u32 q_cols = c.n_heads * c.k_dim, k_cols = c.n_kv_heads * c.k_dim;
  const u32 cols = q_cols + k_cols + (c.values_in_keys ? 0 : c.n_kv_heads * c.v_dim);
  const auto qkv = random_floats(random, most * cols);
  const auto q_norm = random_floats(random, c.q_norm_width),
             k_norm = random_floats(random, c.k_norm_width);
  const Buffer<u32> n_tokens = {tokens};
  Buffer<float> rope(most * 2 * c.n_freqs), inv_freq(c.n_freqs), q(tokens * q_cols);
  for (u32 i = 0; i < c.n_freqs; ++i)
    inv_freq[i] = std::pow(10000.0f, -float(i) / float(c.n_freqs));
  launch<RopeTable>(most,
                    {.out = rope.data(),
                     .positions = positions.data(),
                     .inv_freq = inv_freq.data(),
                     .n_tokens = n_tokens.data()},
                    {.n_freqs = c.n_freqs, .scale = 1.25f});
  for (u32 t = 0; t < tokens; ++t) {
    for (u32 i = 0; i < c.n_freqs; ++i) {
      const double angle = static_cast<float>(positions[t]) * inv_freq[i];
      EXPECT(std::abs(rope[t * 2 * c.n_freqs + i] - 1.25 * std::cos(angle)) < 1e-6);
      EXPECT(std::abs(rope[(t * 2 + 1) * c.n_freqs + i] - 1.25 * std::sin(angle)) < 1e-6);
    }
  }
  const RopeAppendArgs append = {.kv = pages.kernel_pages(),
                                 .page_stride = sequences.page_stride,
                                 .n_heads = c.n_heads,
                                 .q_norm_width = c.q_norm_width,
                                 .k_norm_width = c.k_norm_width,
                                 .eps = kEps,
                                 .offset = kOffset,
                                 .n_freqs = c.n_freqs,
                                 .first_rotated = c.values_in_keys ? c.k_dim - 2 * c.n_freqs : 0,
                                 .interleaved = c.interleaved};
  launch<RopeAppend>(append_geometry(append, most),
                     {.q = q.data(),
                      .qkv = qkv.data(),
                      .pages = pages.data.data(),
                      .positions = positions.data(),
                      .sequences = sequence_of.data(),
                      .page_tables = sequences.page_tables.data(),
                      .n_tokens = n_tokens.data(),
                      .copies = copies.data(),
                      .n_copies = n_copies.data(),
                      .q_norm = c.q_norm_width ? q_norm.data() : nullptr,
                      .k_norm = c.k_norm_width ? k_norm.data() : nullptr,
                      .rope = c.n_freqs ? rope.data() : nullptr},
                     append, std::string("<") + type.name + ">");

  for (u32 t = 0; t < tokens; ++t) {
    const float* row = qkv.data() + t * cols;
    const float* angles = rope.data() + t * 2 * c.n_freqs;
    for (u32 h = 0; h < c.n_heads; ++h) {
      const auto expected = plain_head(row, c.n_heads, h, c.k_dim, q_norm.data(), c.q_norm_width,
                                       angles, c.n_freqs, c.interleaved, c.values_in_keys);
      expect_near("q", q.data() + t * q_cols + h * c.k_dim, expected.data(), c.k_dim, 1e-5, 1e-5);
    }
    const auto position = static_cast<u32>(positions[t]);
    const u32 slot = position % c.page_tokens;
    const auto check_kept = [&](u32 page, u32 h) {
      const auto expected = plain_head(row + q_cols, c.n_kv_heads, h, c.k_dim, k_norm.data(),
                                       c.k_norm_width, angles, c.n_freqs, c.interleaved,
                                       c.values_in_keys);
      for (u32 i = 0; i < c.k_dim; ++i) {
        EXPECT(std::abs(pages.k(page, slot, h, i) - expected[i]) <= slack(type, expected, i));
      }
      if (c.values_in_keys) return;
      const float* v = row + q_cols + k_cols + h * c.v_dim;
      const std::vector<double> values(v, v + c.v_dim);
      for (u32 i = 0; i < c.v_dim; ++i) {
        EXPECT(std::abs(pages.v(page, slot, h, i) - values[i]) <= slack(type, values, i));
      }
    };
    std::vector<u32> kept_by = {static_cast<u32>(sequence_of[t])};
    for (const RowCopy& copy : copies) {
      if (copy.row == t) kept_by.push_back(copy.sequence);
    }
    for (const u32 sequence : kept_by) {
      const u32 page = sequences.page(sequence, position, c.page_tokens);
      for (u32 h = 0; h < c.n_kv_heads; ++h) check_kept(page, h);
    }
  }
}

void check_random(Random& random) {
  const u32 n_kv_heads = random.between(1, 3), k_dim = 2 * random.between(1, 70);
  const u32 n_heads = n_kv_heads * random.between(1, 4);
  const u32 norm = random.below(3);  // none, per head, over all heads
  const u32 q_width = norm == 0 ? 0 : norm == 1 ? k_dim : n_heads * k_dim;
  const u32 k_width = norm == 0 ? 0 : norm == 1 ? k_dim : n_kv_heads * k_dim;
  check(random.one_of(kv_types), {n_heads, n_kv_heads, k_dim, random.between(1, 140),
                                  random.between(3, 40), q_width, k_width,
                                  random.below(k_dim / 2 + 1), random.below(2)});
}

// Rows of four sequences: one from its start across a page, one from the middle, a single token,
// and a branch of the second one. Without x, rows are those that an earlier launch stored.
void check_previous_rows(const KvType& type, u32 heads, u32 dim, u32 page_tokens) {
  Random random(dim);
  const u32 first = page_tokens + 1;
  const Sequences sequences(random, {page_tokens + 2, first + 3, 5, first + 3}, page_tokens);
  Pages pages(type, sequences.n_pages, page_tokens, heads, dim, dim, true);
  pages.fill(random);
  std::vector<i32> positions, sequence_of, parent_of;
  const auto add = [&](u32 sequence, u32 position, i32 parent) {
    positions.push_back(i32(position));
    sequence_of.push_back(i32(sequence));
    parent_of.push_back(parent);
  };
  for (u32 i = 0; i < page_tokens + 2; ++i) add(0, i, i32(i) - 1);
  const u32 second = u32(positions.size());
  for (u32 i = 0; i < 3; ++i) add(1, first + i, i == 0 ? -1 : i32(second + i - 1));
  add(2, 4, -1);
  add(3, first + 2, i32(second + 1));
  const u32 tokens = u32(positions.size()), cols = heads * dim;
  const Buffer<i32> at(positions), of(sequence_of), parents(parent_of);
  Buffer<RowCopy> copies = {{second, 3}, {second + 1, 3}};
  const Buffer<u32> n_copies = {2};
  const Buffer<u32> n_tokens = {tokens};
  const auto x = random_floats(random, tokens * cols);
  const auto row_of = [&](u32 sequence, u32 position) {
    std::vector<double> row;
    for (u32 i = 0; i < cols; ++i) {
      const u32 page = sequences.page(sequence, position, page_tokens);
      row.push_back(pages.k(page, position % page_tokens, i / dim, i % dim));
    }
    return row;
  };
  for (const bool has_x : {true, false}) {
    std::vector<double> expected;
    for (u32 t = 0; t < tokens; ++t) {
      const u32 position = u32(positions[t]);
      std::vector<double> row(cols, 0.0);
      const i32 parent = parent_of[t];
      if (has_x && parent >= 0) {
        row.assign(x.data() + u32(parent) * cols, x.data() + (u32(parent) + 1) * cols);
      } else if (position > 0) {
        row = row_of(u32(sequence_of[t]), position - 1);
      }
      expected.insert(expected.end(), row.begin(), row.end());
    }
    Buffer<float> out(tokens * cols);
    launch<PreviousRows>(tokens + 1,
                         {.out = out.data(),
                          .x = has_x ? x.data() : nullptr,
                          .pages = pages.data.data(),
                          .positions = at.data(),
                          .sequences = of.data(),
                          .page_tables = sequences.page_tables.data(),
                          .n_tokens = n_tokens.data(),
                          .parents = parents.data(),
                          .copies = copies.data(),
                          .n_copies = n_copies.data()},
                         {.kv = pages.kernel_pages(),
                          .page_stride = sequences.page_stride,
                          .has_x = has_x},
                         std::string("<") + type.name + ">");
    expect_near("out", out, expected, 0, type.tolerance);
    for (u32 t = 0; t < tokens; ++t) {
      const std::vector<double> stored = row_of(u32(sequence_of[t]), u32(positions[t]));
      expect_near("stored", x.data() + t * cols, stored.data(), cols, 0, 2 * type.tolerance);
    }
    for (const RowCopy& copy : copies) {
      const std::vector<double> kept = row_of(copy.sequence, u32(positions[copy.row]));
      expect_near("kept", x.data() + copy.row * cols, kept.data(), cols, 0, 2 * type.tolerance);
    }
  }
}

}  // namespace

TEST(previous_rows_f32) { check_previous_rows(kv_types[0], 1, 200, 4); }
TEST(previous_rows_f16_of_several_heads) { check_previous_rows(kv_types[1], 3, 24, 2); }
TEST(previous_rows_bf16) { check_previous_rows(kv_types[2], 1, 8, 16); }

// More angles than threads.
TEST(rope_table_of_far_positions) {
  const u32 n_freqs = 150;
  const Buffer<i32> positions = {0, 4097, 100'000, 131'071};
  const Buffer<u32> n_tokens = {4};
  Buffer<float> inv_freq(n_freqs), rope(4 * 2 * n_freqs);
  for (u32 i = 0; i < n_freqs; ++i) inv_freq[i] = std::pow(10000.0f, -float(i) / float(n_freqs));
  launch<RopeTable>(5,
                    {.out = rope.data(),
                     .positions = positions.data(),
                     .inv_freq = inv_freq.data(),
                     .n_tokens = n_tokens.data()},
                    {.n_freqs = n_freqs, .scale = 0.5f});
  for (u32 t = 0; t < 4; ++t) {
    for (u32 i = 0; i < n_freqs; ++i) {
      const double angle = static_cast<float>(positions[t]) * inv_freq[i];
      EXPECT(std::abs(rope[t * 2 * n_freqs + i] - 0.5 * std::cos(angle)) < 1e-6);
      EXPECT(std::abs(rope[(t * 2 + 1) * n_freqs + i] - 0.5 * std::sin(angle)) < 1e-6);
    }
  }
}

TEST(rope_append_to_pages_beyond_4_gib) {
  const FarPages far;
  if (!far) return;
  check(kv_types[0], {4, 2, 64, 64, 5, 0, 0, 32, 0});
  check(kv_types[3], {2, 1, 80, 48, 4, 0, 80, 8, 1});
}
TEST_RANDOM(random_rope_append, check_random, 12)
TEST(rope_append_plain_f32) { check(kv_types[0], {4, 2, 64, 64, 5, 0, 0, 32, 0}); }
TEST(rope_append_norm_a_head_f16) {
  check(kv_types[1], {6, 2, 80, 80, 16, 80, 80, 40, 0});
  // More numbers and angles than threads.
  check(kv_types[1], {3, 1, 288, 288, 4, 288, 288, 144, 0});
}
TEST(rope_append_norm_all_heads_bf16) {
  check(kv_types[2], {4, 4, 96, 96, 8, 384, 384, 16, 1});
  // More heads than a warp computes together, at any multiple of 4 bytes.
  check(kv_types[2], {9, 5, 66, 66, 8, 594, 330, 33, 0});
}
TEST(rope_append_q8) { check(kv_types[3], {2, 1, 80, 48, 4, 0, 80, 8, 1}); }
TEST(rope_append_q4) { check(kv_types[4], {2, 1, 80, 48, 4, 0, 80, 8, 1}); }
TEST(rope_append_of_values_in_keys) {
  for (const KvType& type : kv_types) {
    check(type, {6, 2, 48, 36, 4, 0, 0, 6, 1, true});
    check(type, {3, 1, 48, 36, 4, 0, 48, 5, 0, true});
  }
}
TEST(rope_append_without_rotation) { check(kv_types[1], {3, 1, 8, 24, 2, 0, 0, 0, 0}); }
