// Gates and operations with recurrent state.

#include <numeric>

#include "operations.h"

namespace {

constexpr u32 kSlots = 5;

// Consecutive runs of the given lengths in different slots, some starting from zero, and one more
// empty entry. The first one continues the last slot, whose end is the memory's.
Buffer<SlotRun> random_runs(Random& random, const std::vector<u32>& lengths) {
  Buffer<SlotRun> runs(lengths.size() + 1);
  u32 row = 0;
  for (u32 i = 0; i < lengths.size(); ++i) {
    const u32 from_zero = random.below(2);
    runs[i] = {row, lengths[i], (i * 2 + kSlots - 1) % kSlots, i == 0 ? 0 : from_zero};
    row += lengths[i];
  }
  runs[static_cast<u32>(lengths.size())] = {0, 0, 0, 0};
  return runs;
}

u32 total(const std::vector<u32>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), 0u);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void check_conv(u32 cols, u32 width, const std::vector<u32>& lengths, bool has_bias,
                u32 activation = FORGE_SILU) {
  Random random(cols + width);
  const auto runs = random_runs(random, lengths);
  const u32 rows = total(lengths), n_kept = width - 1, slot_size = n_kept * cols;
  const auto x = random_floats(random, rows * cols), weight = random_floats(random, cols * width);
  const auto bias = random_floats(random, cols), before = random_floats(random, kSlots * slot_size);
  Buffer<float> state(kSlots * slot_size), out(rows * cols);
  std::copy_n(before.data(), state.size(), state.data());
  const u32 longest = *std::max_element(lengths.begin(), lengths.end());
  const CausalConv1dArgs args{.slot_stride = slot_size,
                              .cols = cols,
                              .width = width,
                              .activation = activation,
                              .has_bias = has_bias};
  const auto shape = forge::geometry(args, static_cast<u32>(runs.size()), longest + 64);
  launch<CausalConv1d>(shape,
                       {.out = out.data(),
                        .x = x.data(),
                        .weight = weight.data(),
                        .bias = has_bias ? bias.data() : nullptr,
                        .state = state.data(),
                        .runs = runs.data()},
                       args);
  std::vector<double> expected(rows * cols), kept(before.data(), before.data() + state.size());
  for (u32 i = 0; i < lengths.size(); ++i) {
    const SlotRun run = runs[i];
    for (u32 c = 0; c < cols; ++c) {
      std::vector<double> column;
      double* slot = kept.data() + run.slot * slot_size + c;
      for (u32 r = 0; r < n_kept; ++r) column.push_back(run.from_zero ? 0 : slot[r * cols]);
      for (u32 r = 0; r < run.n_rows; ++r) column.push_back(x[(run.first_row + r) * cols + c]);
      for (u32 t = 0; t < run.n_rows; ++t) {
        double sum = has_bias ? bias[c] : 0;
        for (u32 k = 0; k < width; ++k) sum += double(weight[c * width + k]) * column[t + k];
        expected[(run.first_row + t) * cols + c] = plain_activation(activation, sum);
      }
      for (u32 r = 0; r < n_kept; ++r) slot[r * cols] = column[run.n_rows + r];
    }
  }
  // Wider sums pass through larger intermediate values and are rounded more often.
  expect_near("causal_conv1d", out, expected, std::max(6e-6, 1e-6 * width), 6e-6);
  // Kept rows are copied; unused slots are unchanged.
  expect_near("state", state, kept, 0, 0);
}

struct Heads {
  u32 n_k, n_v, k_dim, v_dim, tiled;
};

void check_delta(const Heads& h, const std::vector<u32>& lengths) {
  Random random(h.k_dim + h.v_dim);
  const auto runs = random_runs(random, lengths);
  const u32 rows = total(lengths), k_cols = h.n_k * h.k_dim, v_cols = h.n_v * h.v_dim;
  const u32 qkv_cols = 2 * k_cols + v_cols, slot_size = h.n_v * h.k_dim * h.v_dim;
  const auto qkv = random_floats(random, rows * qkv_cols);
  const auto ba = random_floats(random, rows * 2 * h.n_v, 3);
  const auto dt_bias = random_floats(random, h.n_v);
  auto rate = random_floats(random, h.n_v);
  for (float& x : rate) x = -std::abs(x);
  const auto before = random_floats(random, kSlots * slot_size);
  Buffer<float> state(kSlots * slot_size), out(rows * v_cols);
  std::copy_n(before.data(), state.size(), state.data());
  // Large enough to show.
  const float scale = 0.25f, eps = 0.02f;
  launch<GatedDeltaRule>(static_cast<u32>(runs.size()),
                         {.out = out.data(),
                          .qkv = qkv.data(),
                          .ba = ba.data(),
                          .rate = rate.data(),
                          .dt_bias = dt_bias.data(),
                          .state = state.data(),
                          .runs = runs.data()},
                         {.slot_stride = slot_size,
                          .n_k_heads = h.n_k,
                          .n_v_heads = h.n_v,
                          .k_dim = h.k_dim,
                          .v_dim = h.v_dim,
                          .is_tiled = h.tiled,
                          .scale = scale,
                          .eps = eps},
                         "<" + std::to_string(delta_rows(h.k_dim)) + ">");
  std::vector<double> expected(rows * v_cols), kept(before.data(), before.data() + state.size());
  const auto normalized = [&](const float* x, double factor) {
    double squares = 0;
    for (u32 i = 0; i < h.k_dim; ++i) squares += double(x[i]) * x[i];
    std::vector<double> to(x, x + h.k_dim);
    for (double& value : to) value *= factor / std::sqrt(squares + eps);
    return to;
  };
  for (u32 r = 0; r < lengths.size(); ++r) {
    const SlotRun run = runs[r];
    for (u32 head = 0; head < h.n_v; ++head) {
      const u32 key_head = h.tiled ? head % h.n_k : head / (h.n_v / h.n_k);
      const auto place = [&](u32 i, u32 j) -> double& {
        return kept[run.slot * slot_size + (j * h.n_v + head) * h.k_dim + i];
      };
      for (u32 i = 0; run.from_zero && i < h.k_dim; ++i) {
        for (u32 j = 0; j < h.v_dim; ++j) place(i, j) = 0;
      }
      for (u32 t = run.first_row; t < run.first_row + run.n_rows; ++t) {
        const float* row = qkv.data() + t * qkv_cols + key_head * h.k_dim;
        const auto q = normalized(row, scale), k = normalized(row + k_cols, 1);
        const float *b = ba.data() + t * 2 * h.n_v + head, *a = b + h.n_v;
        const double beta = sigmoid(*b);
        const double decay = std::exp(rate[head] * std::log1p(std::exp(*a + dt_bias[head])));
        for (u32 j = 0; j < h.v_dim; ++j) {
          const double v = qkv[t * qkv_cols + 2 * k_cols + head * h.v_dim + j];
          double known = 0, sum = 0;
          for (u32 i = 0; i < h.k_dim; ++i) known += k[i] * decay * place(i, j);
          for (u32 i = 0; i < h.k_dim; ++i) {
            place(i, j) = decay * place(i, j) + k[i] * beta * (v - known);
            sum += q[i] * place(i, j);
          }
          expected[t * v_cols + head * h.v_dim + j] = sum;
        }
      }
    }
  }
  expect_near("gated_delta_rule", out, expected, 2e-5, 2e-5);
  expect_near("state", state, kept, 2e-5, 2e-5);
}

struct ScanHeads {
  u32 n_heads, n_groups, d_state, head_dim;
};

// is_bad: the first time step is NaN, as its results must be; nothing else is checked.
void check_scan(const ScanHeads& h, const std::vector<u32>& lengths, bool has_gate,
                bool is_bad = false) {
  Random random(h.d_state + h.head_dim);
  const auto runs = random_runs(random, lengths);
  const u32 rows = total(lengths), inner = h.n_heads * h.head_dim;
  const u32 xbc_cols = inner + 2 * h.n_groups * h.d_state, slot_size = inner * h.d_state;
  const auto xbc = random_floats(random, rows * xbc_cols);
  const auto gate = random_floats(random, rows * inner, 4);
  auto dt = random_floats(random, rows * h.n_heads, 3);
  if (is_bad) dt[0] = NAN;
  const auto dt_bias = random_floats(random, h.n_heads), skip = random_floats(random, h.n_heads);
  auto rate = random_floats(random, h.n_heads);
  for (float& x : rate) x = -std::abs(x);
  const auto before = random_floats(random, kSlots * slot_size);
  Buffer<float> state(kSlots * slot_size), out(rows * inner);
  if (is_bad) std::fill(out.begin(), out.end(), 0.0f);
  std::copy_n(before.data(), state.size(), state.data());
  const float dt_min = 0.25f, dt_max = 2;
  const u32 fours = h.d_state <= 64 ? 2 : h.d_state <= 128 ? 4 : 8;
  launch<SelectiveScan>(static_cast<u32>(runs.size()),
                        {.out = out.data(),
                         .xbc = xbc.data(),
                         .dt = dt.data(),
                         .gate = has_gate ? gate.data() : nullptr,
                         .rate = rate.data(),
                         .dt_bias = dt_bias.data(),
                         .skip = skip.data(),
                         .state = state.data(),
                         .runs = runs.data()},
                        {.slot_stride = slot_size,
                         .n_heads = h.n_heads,
                         .n_groups = h.n_groups,
                         .d_state = h.d_state,
                         .head_dim = h.head_dim,
                         .has_gate = has_gate,
                         .dt_min = dt_min,
                         .dt_max = dt_max},
                        "<" + std::to_string(fours) + ">");
  if (is_bad) {
    for (u32 i = 0; i < inner; ++i) EXPECT(std::isnan(out[i]) == (i < h.head_dim));
    return;
  }
  std::vector<double> expected(rows * inner), kept(before.data(), before.data() + state.size());
  for (u32 r = 0; r < lengths.size(); ++r) {
    const SlotRun run = runs[r];
    for (u32 column = 0; column < inner; ++column) {
      const u32 head = column / h.head_dim, group = head / (h.n_heads / h.n_groups);
      double* S = kept.data() + run.slot * slot_size +
                  (column % h.head_dim * h.n_heads + head) * h.d_state;
      if (run.from_zero) std::fill_n(S, h.d_state, 0.0);
      for (u32 t = run.first_row; t < run.first_row + run.n_rows; ++t) {
        const float* b = xbc.data() + t * xbc_cols + inner + group * h.d_state;
        const float* c = b + h.n_groups * h.d_state;
        const double softplus = std::log1p(std::exp(dt[t * h.n_heads + head] + dt_bias[head]));
        const double step = std::clamp<double>(softplus, dt_min, dt_max);
        const double x = xbc[t * xbc_cols + column], decay = std::exp(rate[head] * step);
        double sum = skip[head] * x;
        for (u32 i = 0; i < h.d_state; ++i) {
          S[i] = decay * S[i] + b[i] * step * x;
          sum += c[i] * S[i];
        }
        const double by = gate[t * inner + column];
        expected[t * inner + column] = has_gate ? sum * by * sigmoid(by) : sum;
      }
    }
  }
  expect_near("selective_scan", out, expected, 8e-5, 2e-5);
  expect_near("state", state, kept, 2e-5, 2e-5);
}

void check_random_scan(Random& random) {
  const u32 n_groups = random.between(1, 3);
  check_scan({n_groups * random.between(1, 3), n_groups, random.between(1, 64),
              random.between(1, 40)},
             {random.between(1, 40), random.between(1, 3)}, random.below(2) == 0);
}

void check_random_delta(Random& random) {
  const u32 n_k = random.between(1, 3);
  check_delta({n_k, n_k * random.between(1, 3), random.between(1, 40), random.between(1, 40),
               random.below(2)},
              {random.between(1, 40), random.between(1, 3)});
}

void check_random_conv(Random& random) {
  check_conv(random.between(1, 300), random.between(2, 64),
             {random.between(1, 150), random.between(1, 70), 1}, random.below(2) == 0);
}

}  // namespace

TEST(sigmoid_gate_of_columns_and_groups) {
  Random random(1);
  const u32 rows = 2, cols = 1026;
  const Buffer<u32> n_rows = {rows};
  for (const u32 gates : {cols, 3u, 1u}) {
    const auto x = random_floats(random, rows * cols);
    const auto gate = random_floats(random, rows * gates, 9);
    const auto residual = random_floats(random, rows * cols);
    Buffer<float> out(rows * cols);
    const bool adds = gates != 3;
    launch<SigmoidGate>(rows + 1,
                        {.out = out.data(),
                         .x = x.data(),
                         .gate = gate.data(),
                         .residual = adds ? residual.data() : nullptr,
                         .n_rows = n_rows.data()},
                        {.cols = cols, .gates = gates, .has_residual = adds});
    std::vector<double> expected;
    for (u32 i = 0; i < rows * cols; ++i) {
      const double by = gate[i / cols * gates + i % cols / (cols / gates)];
      expected.push_back((adds ? residual[i] : 0) + sigmoid(by) * x[i]);
    }
    expect_near("sigmoid_gate", out, expected, 1e-6, 1e-6);
  }
}
TEST(gated_rms_norm_of_groups) {
  Random random(2);
  const u32 rows = 3, width = 37, groups = 5, cols = width * groups;
  const Buffer<u32> n_rows = {rows};
  const auto x = random_floats(random, rows * cols), gate = random_floats(random, rows * cols, 4);
  const auto weight = random_floats(random, cols);
  for (const u32 weight_groups : {1u, groups}) {
    const u32 activation = weight_groups == 1 ? FORGE_SILU : FORGE_GELU_TANH;
    Buffer<float> out(rows * cols);
    launch<GatedRmsNorm>(rows + 1,
                         {.out = out.data(),
                          .x = x.data(),
                          .gate = gate.data(),
                          .weight = weight.data(),
                          .n_rows = n_rows.data()},
                         {.cols = cols,
                          .width = width,
                          .weight_groups = weight_groups,
                          .eps = 0.1f,
                          .activation = activation});
    std::vector<double> expected;
    for (u32 i = 0; i < rows * cols; ++i) {
      const float* group = x.data() + i / width * width;
      double squares = 0;
      for (u32 k = 0; k < width; ++k) squares += double(group[k]) * group[k];
      expected.push_back(x[i] / std::sqrt(squares / width + 0.1) *
                         weight[i % (weight_groups * width)] *
                         plain_activation(activation, gate[i]));
    }
    expect_near("gated_rms_norm", out, expected, 2e-6, 4e-6);
  }
}
TEST(causal_conv1d_of_short_runs) { check_conv(131, 4, {1, 2, 9}, true); }
TEST(causal_conv1d_of_a_prompt) {
  check_conv(40, 4, {150, 1, 64}, false, FORGE_IDENTITY);
}
TEST(causal_conv1d_of_the_widest) { check_conv(9, 64, {65, 7, 130}, true); }
TEST_RANDOM(random_causal_conv1d, check_random_conv, 4)
TEST(gated_delta_rule_of_one_token) { check_delta({2, 4, 16, 24, 0}, {1, 1, 1}); }
TEST(gated_delta_rule_of_odd_heads) { check_delta({3, 3, 7, 21, 1}, {5, 37}); }
TEST(gated_delta_rule_of_models) { check_delta({1, 2, 128, 128, 0}, {20, 1}); }
TEST(gated_delta_rule_of_every_width) {
  for (const u32 k_dim : {30u, 64u, 256u}) check_delta({1, 2, k_dim, 9, 1}, {3});
}
TEST_RANDOM(random_gated_delta_rule, check_random_delta, 4)
TEST(selective_scan_of_one_token) { check_scan({4, 2, 16, 24}, {1, 1, 1}, true); }
TEST(selective_scan_of_odd_heads) { check_scan({3, 1, 7, 21}, {5, 37}, false); }
TEST(selective_scan_of_models) { check_scan({2, 1, 128, 64}, {20, 1}, true); }
TEST(selective_scan_of_the_largest_state) { check_scan({1, 1, 256, 9}, {3}, false); }
TEST(selective_scan_keeps_nan) { check_scan({2, 1, 16, 5}, {1, 1}, false, true); }
TEST_RANDOM(random_selective_scan, check_random_scan, 4)
