// Decode attention with masks: bits, as for trees of draft tokens, and floats added to the scores.

#include <algorithm>

#include "launch.h"

namespace {

struct MaskCase {
  int type;  // of kv_types
  u32 dim, n_heads, n_kv_heads, page_tokens;
  std::vector<u32> lengths;  // of sequences; their last `queries` positions are the queries
  u32 queries;
  bool sinks, causal;
  u32 mask_heads;
  bool bits;
  u32 window = 0, split_tokens = 256;
};

void check_masked(const MaskCase& c) {
  const KvType& type = kv_types[c.type];
  Random random(c.dim + c.queries);
  const Sequences sequences(random, c.lengths, c.page_tokens);
  Pages pages(type, sequences.n_pages, c.page_tokens, c.n_kv_heads, c.dim, c.dim);
  pages.fill(random);
  const u32 n = static_cast<u32>(c.lengths.size()), rows = n * c.queries;
  const u32 longest = *std::max_element(c.lengths.begin(), c.lengths.end());
  const u32 stride = c.bits ? blocks_for(longest, 32) : longest;
  const auto mask = random_mask(random, rows * c.mask_heads, stride, c.bits);
  const Buffer<u32> mask_stride = {stride};
  const auto q = random_floats(random, u64(rows) * c.n_heads * c.dim);
  const auto sinks = random_floats(random, c.n_heads);
  Buffer<float> out(q.size());
  const AttentionArguments arguments = {c.sinks ? sinks.data() : nullptr,
                                        mask.data(),
                                        mask_stride.data(),
                                        0.11f,
                                        0,
                                        c.n_heads,
                                        c.window,
                                        c.causal ? 1u : 0u,
                                        c.queries,
                                        c.mask_heads,
                                        c.bits ? 1u : 0u};
  std::vector<QueryTile> tiles(n);
  for (u32 s = 0; s < n; ++s) {
    tiles[s] = {s * c.queries, c.queries, s, c.lengths[s] - c.queries, c.lengths[s]};
  }
  const Buffer<AttentionWork> work = divide_work(tiles, c.causal, c.split_tokens);
  const u32 n_entries = static_cast<u32>(work.size());
  const Buffer<u32> n_work = {n_entries - 2};
  Buffer<float> partial_out(n_entries * c.queries * c.n_heads * c.dim),
      partial_ml(n_entries * c.queries * c.n_heads * 2);
  launch(DecodeAttention{.type = &type,
                         .dim = c.dim,
                         .out = out.data(),
                         .partial_out = partial_out.data(),
                         .partial_ml = partial_ml.data(),
                         .q = q.data(),
                         .pages = &pages,
                         .arguments = arguments,
                         .tiles = nullptr,
                         .work = work.data(),
                         .n_work = n_work.data(),
                         .max_work = n_entries,
                         .tables = &sequences});
  for (u32 row = 0; row < rows; ++row) {
    const QueryTile& tile = tiles[row / c.queries];
    for (u32 h = 0; h < c.n_heads; ++h) {
      const u64 mask_row = u64(row) * c.mask_heads + (c.mask_heads > 1 ? h : 0);
      const u32* own = mask.data() + mask_row * stride;
      const AttentionShape shape = {c.n_heads,
                                    arguments.scale,
                                    c.window,
                                    0,
                                    arguments.sinks,
                                    c.bits ? own : nullptr,
                                    c.bits ? nullptr : reinterpret_cast<const float*>(own)};
      const u64 at = (u64(row) * c.n_heads + h) * c.dim;
      const auto expected =
          plain_attention(pages, sequences, tile.sequence, tile.first_position + row % c.queries, h,
                          q.data() + at, shape, c.causal ? 0 : tile.n_keys);
      expect_near("attention", out.data() + at, expected.data(), c.dim, 5e-3, 5e-3);
    }
  }
}

}  // namespace

TEST(decode_attention_of_a_draft_tree) {
  check_masked({1, 64, 4, 2, 16, {290, 40}, 7, false, true, 1, true});
}
TEST(decode_attention_of_masked_queries_q8_with_sinks) {
  check_masked({3, 64, 6, 3, 8, {77}, 16, true, false, 6, true});
}
TEST(decode_attention_of_masked_wide_heads) {
  check_masked({1, 256, 2, 1, 16, {300}, 3, false, false, 1, true});
}
TEST(decode_attention_of_biased_scores) {
  check_masked({1, 128, 4, 2, 16, {330, 70}, 3, true, true, 4, false, 0, 64});
  check_masked({3, 64, 4, 2, 16, {130, 33}, 2, false, false, 1, false, 40, 64});
  check_masked({4, 64, 4, 2, 16, {130, 33}, 2, false, false, 1, false, 40, 64});
}
