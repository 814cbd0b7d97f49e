// Decode attention with masks of visible positions, as for trees of draft tokens.

#include <algorithm>

#include "launch.h"

namespace {

struct MaskCase {
  int type;  // of kv_types
  u32 dim, n_heads, n_kv_heads, page_tokens;
  std::vector<u32> lengths;  // of sequences; their last `queries` positions are the queries
  u32 queries;
  bool sinks, causal;
};

// A random half of the positions for every query, and none for the first query.
Buffer<u32> random_mask(Random& random, u32 rows, u32 words) {
  Buffer<u32> mask(u64(rows) * words);
  for (u32 i = 0; i < mask.size(); ++i) {
    mask[i] = i < words ? 0 : static_cast<u32>(random.below(65536) << 16 | random.below(65536));
  }
  return mask;
}

void check_masked(const MaskCase& c) {
  const KvType& type = kv_types[c.type];
  Random random(c.dim + c.queries);
  const Sequences sequences(random, c.lengths, c.page_tokens);
  Pages pages(type, sequences.n_pages, c.page_tokens, c.n_kv_heads, c.dim, c.dim);
  pages.fill(random);
  const u32 n = static_cast<u32>(c.lengths.size()), rows = n * c.queries;
  const u32 words = blocks_for(*std::max_element(c.lengths.begin(), c.lengths.end()), 32);
  const auto mask = random_mask(random, rows, words);
  const auto q = random_floats(random, u64(rows) * c.n_heads * c.dim);
  const auto sinks = random_floats(random, c.n_heads);
  Buffer<float> out(q.size());
  const AttentionArguments arguments = {c.sinks ? sinks.data() : nullptr,
                                        mask.data(),
                                        0.11f,
                                        0,
                                        c.n_heads,
                                        0,
                                        c.causal ? 1u : 0u,
                                        c.queries,
                                        words};
  Buffer<QueryTile> tiles(n);
  std::vector<AttentionWork> list;
  for (u32 s = 0; s < n; ++s) {
    const u32 first = static_cast<u32>(list.size()), splits = blocks_for(c.lengths[s], 256);
    tiles[s] = {s * c.queries, c.queries, s, c.lengths[s] - c.queries, c.lengths[s]};
    for (u32 split = 0; split < splits; ++split) list.push_back({s, split, first, splits});
  }
  const Buffer<u32> n_work = {static_cast<u32>(list.size())};
  Buffer<AttentionWork> work(list.size());
  std::copy(list.begin(), list.end(), work.begin());
  Buffer<float> partial_out(list.size() * c.queries * c.n_heads * c.dim),
      partial_ml(list.size() * c.queries * c.n_heads * 2);
  launch(DecodeAttention{.type = &type,
                         .dim = c.dim,
                         .out = out.data(),
                         .partial_out = partial_out.data(),
                         .partial_ml = partial_ml.data(),
                         .q = q.data(),
                         .pages = &pages,
                         .arguments = arguments,
                         .tiles = tiles.data(),
                         .work = work.data(),
                         .n_work = n_work.data(),
                         .max_work = n_work[0],
                         .tables = &sequences});
  for (u32 row = 0; row < rows; ++row) {
    const QueryTile& tile = tiles[row / c.queries];
    const u32 position = c.causal ? tile.first_position + row % c.queries : tile.end - 1;
    const AttentionShape shape = {c.n_heads, arguments.scale, 0, 0, arguments.sinks,
                                  mask.data() + u64(row) * words};
    for (u32 h = 0; h < c.n_heads; ++h) {
      const u64 at = (u64(row) * c.n_heads + h) * c.dim;
      const auto expected = plain_attention(pages, sequences, tile.sequence, position, h,
                                            q.data() + at, shape);
      expect_near("attention", out.data() + at, expected.data(), c.dim, 5e-3, 5e-3);
    }
  }
}

}  // namespace

TEST(decode_attention_of_a_draft_tree) {
  check_masked({1, 64, 4, 2, 16, {290, 40}, 7, false, true});
}
TEST(decode_attention_of_masked_queries_q8_with_sinks) {
  check_masked({3, 32, 6, 3, 8, {77}, 16, true, false});
}
TEST(decode_attention_of_masked_wide_heads) {
  check_masked({1, 256, 2, 1, 16, {300}, 3, false, false});
}
