#include "operations.h"

namespace {

struct Seen {
  bool causal = true;
  u32 mask_heads = 0;
  bool bits = false;
};

void check(const KvType& type, u32 n_heads, u32 n_kv_heads, u32 k_dim, u32 v_dim, u32 page_tokens,
           u32 window, float softcap, bool with_sinks, bool values_in_keys = false,
           const Seen& seen = {}) {
  Random random(k_dim + window);
  const std::vector<u32> lengths = {150, 1, 9};
  const Sequences sequences(random, lengths, page_tokens);
  Pages pages(type, sequences.n_pages, page_tokens, n_kv_heads, k_dim, v_dim, values_in_keys);
  pages.fill(random);
  pages.spoil_after(sequences, lengths);
  const Buffer<i32> positions = {149, 130, 0, 8}, sequence_of = {0, 0, 1, 2};
  const Buffer<i32> n_keys = {140, 140, 1, 0};
  const u32 tokens = 4;
  const auto q = random_floats(random, tokens * n_heads * k_dim),
             sinks = random_floats(random, n_heads);
  const Buffer<u32> n_tokens = {tokens};
  const u32 stride = seen.bits ? 5 : 150;
  const auto mask = random_mask(random, tokens * std::max(seen.mask_heads, 1u), stride, seen.bits);
  const Buffer<u32> mask_stride = {stride};
  Buffer<float> out(tokens * n_heads * v_dim);
  const float scale = 0.2f;
  launch(NaiveAttention{.type = &type,
                        .out = out.data(),
                        .q = q.data(),
                        .pages = &pages,
                        .positions = positions.data(),
                        .sequences = sequence_of.data(),
                        .n_keys = n_keys.data(),
                        .tables = &sequences,
                        .n_tokens = n_tokens.data(),
                        .max_tokens = tokens + 1,
                        .arguments = {.sinks = with_sinks ? sinks.data() : nullptr,
                                      .mask = seen.mask_heads > 0 ? mask.data() : nullptr,
                                      .mask_stride = mask_stride.data(),
                                      .scale = scale,
                                      .softcap = softcap,
                                      .n_heads = n_heads,
                                      .window = window,
                                      .causal = seen.causal,
                                      .max_queries = 1,
                                      .mask_heads = seen.mask_heads,
                                      .mask_is_bits = seen.bits}});
  for (u32 t = 0; t < tokens; ++t) {
    for (u32 h = 0; h < n_heads; ++h) {
      const u32 row = t * n_heads + h;
      const u32 mask_row = seen.mask_heads > 1 ? row : t;
      const u32* own = seen.mask_heads > 0 ? mask.data() + u64(mask_row) * stride : nullptr;
      const AttentionShape shape = {n_heads, scale, window, softcap,
                                    with_sinks ? sinks.data() : nullptr,
                                    seen.bits ? own : nullptr,
                                    seen.bits ? nullptr : reinterpret_cast<const float*>(own)};
      std::vector<double> expected(v_dim, 0.0);
      if (seen.causal || n_keys[t] > 0) {
        expected = plain_attention(pages, sequences, static_cast<u32>(sequence_of[t]),
                                   static_cast<u32>(positions[t]), h, q.data() + row * k_dim, shape,
                                   seen.causal ? 0 : static_cast<u32>(n_keys[t]));
      }
      expect_near("attention", out.data() + row * v_dim, expected.data(), v_dim, 4e-6, 4e-5);
    }
  }
}

void check_random(Random& random) {
  const u32 n_kv_heads = random.between(1, 3);
  check(random.one_of(kv_types), n_kv_heads * random.between(1, 4), n_kv_heads,
        random.between(1, 70), random.between(1, 140), random.between(1, 40),
        random.below(2) * random.between(1, 150), static_cast<float>(random.below(2) * 10),
        random.below(2) == 0);
}

}  // namespace

TEST(naive_attention_over_pages_beyond_4_gib) {
  const FarPages far;
  if (far) check(kv_types[0], 4, 2, 16, 16, 40, 0, 0, false);
}
TEST_RANDOM(random_naive_attention, check_random, 6)
TEST(naive_attention_f32) { check(kv_types[0], 4, 2, 16, 16, 16, 0, 0, false); }
TEST(naive_attention_window_f16) { check(kv_types[1], 2, 1, 8, 24, 7, 20, 0, false); }
TEST(naive_attention_softcap_bf16) { check(kv_types[2], 2, 2, 20, 12, 32, 0, 5, false); }
TEST(naive_attention_sinks_q4) { check(kv_types[4], 2, 1, 48, 80, 3, 128, 0, true); }
TEST(naive_attention_sinks_q8) { check(kv_types[3], 2, 1, 48, 64, 3, 128, 0, true); }
TEST(naive_attention_of_values_in_keys) {
  for (const KvType& type : kv_types) check(type, 6, 2, 40, 36, 5, 0, 0, false, true);
}
TEST(naive_attention_without_causality) {
  check(kv_types[0], 4, 2, 16, 16, 16, 0, 0, false, false, {.causal = false});
  check(kv_types[1], 4, 2, 16, 16, 16, 15, 0, true, false, {.causal = false});
}
TEST(naive_attention_of_masked_queries) {
  check(kv_types[0], 4, 2, 16, 16, 16, 0, 0, false, false, {.mask_heads = 1, .bits = true});
  check(kv_types[3], 4, 2, 32, 16, 16, 50, 9, true, false, {.mask_heads = 4});
  check(kv_types[4], 4, 2, 40, 16, 16, 0, 0, false, false, {.mask_heads = 1, .bits = true});
  check(kv_types[2], 4, 2, 32, 16, 16, 0, 0, false, false, {.causal = false, .mask_heads = 4});
}
TEST(naive_attention_of_wide_values) { check(kv_types[0], 1, 1, 12, 520, 16, 0, 0, false); }
