// rope_decode_attention has the bits of rope_append and batched_decode_attention, whose tests
// compare them with plain loops, and its results are compared with a plain loop once more.

#include <cstring>

#include "launch.h"

namespace {

struct Case {
  int type;  // of kv_types
  u32 dim, n_heads, n_kv_heads, page_tokens;
  std::vector<u32> lengths;  // of the sequences, with their new tokens
  u32 split_tokens = 256;
  bool q_norm = false, k_norm = false;
  u32 n_freqs = 0;  // 0: no rotation
  u32 interleaved = 0;
  u32 window = 0;
  bool chunked = false, sinks = false;
};

void check(const Case& c) {
  const KvType& type = kv_types[c.type];
  Random random(c.dim + c.n_freqs + c.window);
  const u32 tokens = static_cast<u32>(c.lengths.size());
  const Sequences sequences(random, c.lengths, c.page_tokens);
  Pages pages(type, sequences.n_pages, c.page_tokens, c.n_kv_heads, c.dim, c.dim);
  Pages appended(type, sequences.n_pages, c.page_tokens, c.n_kv_heads, c.dim, c.dim);
  // The places of the new keys and values have numbers of something else.
  pages.fill(random);
  std::copy(pages.data.begin(), pages.data.end(), appended.data.begin());
  const u32 q_cols = c.n_heads * c.dim, cols = q_cols + 2 * c.n_kv_heads * c.dim;
  const auto qkv = random_floats(random, tokens * cols);
  const auto rope = random_floats(random, tokens * 2 * c.n_freqs);
  const auto q_norm = random_floats(random, c.dim), k_norm = random_floats(random, c.dim);
  const auto sinks = random_floats(random, c.n_heads);
  const float eps = 0.05f, offset = 0.5f;

  Buffer<i32> positions(tokens), sequence_of(tokens);
  std::vector<QueryTile> tiles;
  for (u32 t = 0; t < tokens; ++t) {
    positions[t] = static_cast<i32>(c.lengths[t] - 1);
    sequence_of[t] = static_cast<i32>(t);
    tiles.push_back({t, 1, t, c.lengths[t] - 1, c.lengths[t]});
  }
  const Buffer<u32> n_tokens = {tokens}, n_copies = {0};
  Buffer<RowCopy> copies(1);
  Buffer<float> q(tokens * q_cols);
  const RopeAppendArgs append = {.kv = appended.kernel_pages(),
                                 .page_stride = sequences.page_stride,
                                 .n_heads = c.n_heads,
                                 .q_norm_width = c.q_norm ? c.dim : 0,
                                 .k_norm_width = c.k_norm ? c.dim : 0,
                                 .eps = eps,
                                 .offset = offset,
                                 .n_freqs = c.n_freqs,
                                 .first_rotated = 0,
                                 .interleaved = c.interleaved};
  launch<RopeAppend>(append_geometry(append, tokens),
                     {.q = q.data(),
                      .qkv = qkv.data(),
                      .pages = appended.data.data(),
                      .positions = positions.data(),
                      .sequences = sequence_of.data(),
                      .page_tables = sequences.page_tables.data(),
                      .n_tokens = n_tokens.data(),
                      .copies = copies.data(),
                      .n_copies = n_copies.data(),
                      .q_norm = c.q_norm ? q_norm.data() : nullptr,
                      .k_norm = c.k_norm ? k_norm.data() : nullptr,
                      .rope = c.n_freqs ? rope.data() : nullptr},
                     append, std::string("<") + type.name + ">");

  const AttentionArguments args = {.sinks = c.sinks ? sinks.data() : nullptr,
                                   .mask = nullptr,
                                   .mask_stride = nullptr,
                                   .scale = 0.11f,
                                   .softcap = 0,
                                   .n_heads = c.n_heads,
                                   .window = c.window,
                                   .causal = 1,
                                   .max_queries = 1,
                                   .mask_heads = 0,
                                   .mask_is_bits = 0,
                                   .chunked = c.chunked};
  const Buffer<AttentionWork> work = divide_work(tiles, true, c.split_tokens);
  const u32 n = static_cast<u32>(work.size());
  const Buffer<u32> n_work = {n - 2};
  Buffer<float> partial_out(n * q_cols), partial_ml(n * c.n_heads * 2);
  Buffer<float> expected(tokens * q_cols), out(tokens * q_cols);
  const auto operation = [&](Buffer<float>& to, const float* queries, const Pages& from) {
    return DecodeAttention{.type = &type,
                           .dim = c.dim,
                           .out = to.data(),
                           .partial_out = partial_out.data(),
                           .partial_ml = partial_ml.data(),
                           .q = queries,
                           .pages = &from,
                           .arguments = args,
                           .tiles = nullptr,
                           .work = work.data(),
                           .n_work = n_work.data(),
                           .max_work = n,
                           .tables = &sequences};
  };
  launch(operation(expected, q.data(), appended));
  launch_rope_decode(operation(out, nullptr, pages), {.qkv = qkv.data(),
                                                      .rope = c.n_freqs ? rope.data() : nullptr,
                                                      .q_norm = c.q_norm ? q_norm.data() : nullptr,
                                                      .k_norm = c.k_norm ? k_norm.data() : nullptr,
                                                      .eps = eps,
                                                      .offset = offset,
                                                      .n_freqs = c.n_freqs,
                                                      .interleaved = c.interleaved});
  const auto has_bits_of = [](const auto& a, const auto& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
  };
  EXPECT(has_bits_of(pages.data, appended.data));
  EXPECT(has_bits_of(out, expected));

  const AttentionShape shape = {c.n_heads, args.scale, c.window, 0, args.sinks, nullptr};
  const double tolerance =
      (type.name[0] == 'b' ? 3e-2 : 4e-3) * std::max(1.0, std::sqrt(c.dim / 64.0));
  if (c.chunked) return;
  for (u32 t = 0; t < tokens; ++t) {
    for (u32 h = 0; h < c.n_heads; ++h) {
      const u64 at = u64(t) * q_cols + h * c.dim;
      const auto plain = plain_attention(pages, sequences, t, c.lengths[t] - 1, h, q.data() + at,
                                         shape);
      expect_near("attention", out.data() + at, plain.data(), c.dim, tolerance, tolerance);
    }
  }
}

void check_random(Random& random) {
  const u32 dims[] = {64, 128, 256};
  Case c = {static_cast<int>(random.between(1, 3)), random.one_of(dims), 0, random.between(1, 3),
            random.between(1, 40), {}, 64 * random.between(1, 5)};
  c.n_heads = c.n_kv_heads * random.between(1, 5);
  for (u32 n = random.between(1, 3); n > 0; --n) c.lengths.push_back(random.between(1, 700));
  c.q_norm = random.below(2) == 0;
  c.k_norm = random.below(2) == 0;
  c.n_freqs = random.below(c.dim / 2 + 1);
  c.interleaved = random.below(2);
  c.window = random.below(2) * random.between(1, 200);
  c.chunked = c.window > 0 && random.below(3) == 0;
  c.sinks = random.below(2) == 0;
  check(c);
}

}  // namespace

TEST_RANDOM(rope_decode_attention_of_random_shapes, check_random, 5)
// Position 0, the first and the last slot of a page, the last position of a split and the first of
// the next, in stages that are in flight and in later ones.
TEST(rope_decode_attention_at_every_border) {
  check({1, 64, 6, 2, 16, {1, 16, 17, 32, 33, 128, 129, 256, 257, 300}, 256, false, false, 32});
  check({3, 64, 6, 2, 16, {1, 2, 33, 64, 65, 128, 129, 256, 257, 500}, 256, false, false, 32});
  check({3, 256, 2, 2, 8, {1, 16, 17, 33, 65, 97, 129}, 128, true, true, 32, 1});
}
TEST(rope_decode_attention_q8_in_a_window) {
  check({3, 128, 4, 1, 32, {600, 90, 1}, 256, true, true, 64, 0, 100, false, true});
  // The pieces of a window are dealt out to the entries in turn.
  check({2, 64, 4, 2, 16, {3300, 2000}, 1024, false, false, 32, 0, 300});
}
TEST(rope_decode_attention_bf16_of_16_heads) {
  check({2, 128, 16, 1, 5, {61, 200}, 64, false, false, 20, 1});
}
TEST(rope_decode_attention_f16_without_rotation) {
  check({1, 256, 4, 1, 16, {40, 300}, 256, true, false});
}
