// Attention with values inside of the keys, for decoded queries and for prompts.

#include <algorithm>

#include "operations.h"

namespace {

struct Case {
  int type;  // of kv_types
  u32 k_dim, v_dim, n_heads, n_kv_heads, page_tokens;
  u32 window;
  float softcap;
  bool sinks;
};

// The last `queries` positions of a sequence of length `length`.
struct Run {
  u32 length, queries;
};

// Tiles of at most `most_queries` queries.
void check(const Case& c, const std::vector<Run>& runs, u32 most_queries, bool decodes,
           u32 split_tokens = 256) {
  const KvType& type = attended_type(kv_types[c.type]);
  Random random(c.k_dim + c.window + runs.size() + c.n_heads);
  std::vector<u32> lengths;
  std::vector<QueryTile> tile_list;
  u32 rows = 0;
  for (u32 s = 0; s < runs.size(); ++s) {
    lengths.push_back(runs[s].length);
    for (u32 done = 0; done < runs[s].queries; done += most_queries) {
      const u32 n = std::min(most_queries, runs[s].queries - done);
      const u32 position = runs[s].length - runs[s].queries + done;
      tile_list.push_back({rows, n, s, position, position + n});
      rows += n;
    }
  }
  const Sequences sequences(random, lengths, c.page_tokens);
  Pages pages(type, sequences.n_pages, c.page_tokens, c.n_kv_heads, c.k_dim, c.v_dim, true);
  pages.fill(random);
  pages.spoil_after(sequences, lengths);
  const auto q = random_floats(random, rows * c.n_heads * c.k_dim);
  const auto sinks = random_floats(random, c.n_heads);
  Buffer<QueryTile> tiles(tile_list.size());
  std::copy(tile_list.begin(), tile_list.end(), tiles.begin());
  const Buffer<AttentionWork> work = divide_work(tile_list, true, decodes ? split_tokens : 256);
  const u32 n = static_cast<u32>(decodes ? work.size() : tiles.size());
  const Buffer<u32> n_work = {decodes ? n - 2 : n};
  Buffer<float> out(rows * c.n_heads * c.v_dim);
  Buffer<float> partial_out(decodes ? n * most_queries * c.n_heads * c.v_dim : 0),
      partial_ml(decodes ? n * most_queries * c.n_heads * 2 : 0);
  const AttentionArguments arguments = {
      c.sinks ? sinks.data() : nullptr, nullptr, nullptr, 0.15f, c.softcap, c.n_heads, c.window, 1,
      most_queries, 0, 0};
  launch_latent({.type = &type,
                 .dim = c.v_dim,
                 .out = out.data(),
                 .partial_out = decodes ? partial_out.data() : nullptr,
                 .partial_ml = decodes ? partial_ml.data() : nullptr,
                 .q = q.data(),
                 .pages = &pages,
                 .arguments = arguments,
                 .tiles = tiles.data(),
                 .work = decodes ? work.data() : nullptr,
                 .n_work = n_work.data(),
                 .max_work = decodes ? n : n + 2,
                 .tables = &sequences});
  // Queries and probabilities are rounded to 16 bits.
  const double tolerance = (type.name[0] == 'b' ? 2e-2 : 2.5e-3) * std::sqrt(c.k_dim / 64.0);
  const AttentionShape shape = {c.n_heads, arguments.scale, c.window, c.softcap, arguments.sinks,
                                nullptr};
  for (const QueryTile& tile : tile_list) {
    for (u32 i = 0; i < tile.n_queries; ++i) {
      for (u32 h = 0; h < c.n_heads; ++h) {
        const u64 row = u64(tile.first_row + i) * c.n_heads + h;
        const auto expected = plain_attention(pages, sequences, tile.sequence,
                                              tile.first_position + i, h,
                                              q.data() + row * c.k_dim, shape);
        expect_near("attention", out.data() + row * c.v_dim, expected.data(), c.v_dim, tolerance,
                    tolerance);
      }
    }
  }
}

}  // namespace

TEST(latent_attention_of_one_token) {
  check({1, 288, 256, 4, 1, 16, 0, 0, false}, {{1, 1}}, 1, true);
}
TEST(latent_attention_of_a_batch) {
  check({1, 288, 256, 16, 1, 64, 0, 0, false}, {{300, 1}, {17, 1}, {257, 1}}, 1, true);
}
TEST(latent_attention_of_wide_keys) {
  check({2, 576, 512, 20, 1, 16, 0, 0, false}, {{70, 1}}, 1, true);
}
TEST(latent_attention_of_several_queries) {
  check({3, 288, 256, 6, 2, 7, 0, 0, true}, {{50, 9}, {5, 5}}, 16, true);
}
TEST(latent_attention_in_a_window) {
  check({1, 288, 256, 5, 1, 16, 40, 20, false}, {{270, 12}}, 16, true);
  check({1, 288, 256, 5, 1, 16, 0, 0, true}, {{400, 2}}, 16, true, 96);
}
TEST(latent_attention_over_pages_beyond_4_gib) {
  const FarPages far;
  if (far) check({1, 288, 256, 4, 1, 16, 0, 0, false}, {{70, 1}}, 1, true);
}
TEST(latent_attention_of_prompts) {
  check({1, 288, 256, 3, 1, 16, 0, 0, true}, {{70, 66}, {20, 20}}, 64, false);
  check({3, 576, 512, 2, 1, 16, 0, 0, false}, {{40, 18}}, 64, false);
}
