// The attention kernels on matrix units, for decode steps and prompts.

#include <algorithm>

#include "operations.h"

namespace {

struct Case {
  int type;  // of kv_types
  u32 dim, n_heads, n_kv_heads, page_tokens;
  u32 window;
  float softcap;
  bool sinks;
  bool causal = true;
};

// The last `queries` positions of a sequence of length `length`.
struct Run {
  u32 length, queries;
};

// The data of a test of either kernel.
class Setting {
 public:
  const KvType& type;

  Setting(const Case& c, const std::vector<Run>& runs, u32 most_queries)
      : type(attended_type(kv_types[c.type])),
        case_(c),
        random_(c.dim + c.window + runs.size()),
        sequences(random_, lengths(runs), c.page_tokens),
        pages(type, sequences.n_pages, c.page_tokens, c.n_kv_heads, c.dim, c.dim),
        sinks(random_floats(random_, c.n_heads)),
        q(rows(runs) * c.n_heads * c.dim),
        out(q.size()) {
    pages.fill(random_);
    pages.spoil_after(sequences, lengths(runs));
    for (float& x : q) x = random_.normal();
    u32 row = 0;
    for (u32 s = 0; s < runs.size(); ++s) {
      for (u32 done = 0; done < runs[s].queries; done += most_queries) {
        const u32 n = std::min(most_queries, runs[s].queries - done);
        const u32 position = runs[s].length - runs[s].queries + done;
        tiles.push_back({row, n, s, position, runs[s].length});
        row += n;
      }
    }
    args = {c.sinks ? sinks.data() : nullptr,
            nullptr,
            nullptr,
            0.11f,
            c.softcap,
            c.n_heads,
            c.window,
            c.causal ? 1u : 0u,
            most_queries,
            0,
            0};
  }

  void check() const {
    // Queries and probabilities are rounded to 16 bits; wide heads have larger scores.
    const double tolerance =
        (type.name[0] == 'b' ? 3e-2 : 4e-3) * std::max(1.0, std::sqrt(case_.dim / 64.0));
    const AttentionShape shape = {case_.n_heads, args.scale, case_.window, case_.softcap,
                                  args.sinks, nullptr};
    for (const QueryTile& tile : tiles) {
      for (u32 i = 0; i < tile.n_queries; ++i) {
        for (u32 h = 0; h < case_.n_heads; ++h) {
          const u64 at = (u64(tile.first_row + i) * case_.n_heads + h) * case_.dim;
          const u32 position = tile.first_position + i;
          const auto expected =
              plain_attention(pages, sequences, tile.sequence, position, h, q.data() + at, shape,
                              case_.causal ? 0 : tile.n_keys);
          expect_near("attention", out.data() + at, expected.data(), case_.dim, tolerance,
                      tolerance);
        }
      }
    }
  }

 private:
  static std::vector<u32> lengths(const std::vector<Run>& runs) {
    std::vector<u32> list;
    for (const Run& run : runs) list.push_back(run.length);
    return list;
  }
  static size_t rows(const std::vector<Run>& runs) {
    size_t n = 0;
    for (const Run& run : runs) n += run.queries;
    return n;
  }
  Case case_;
  Random random_;

 public:
  Sequences sequences;
  Pages pages;
  Buffer<float> sinks, q, out;
  std::vector<QueryTile> tiles;
  AttentionArguments args;
};

void check_prefill(const Case& c, const std::vector<Run>& runs) {
  Setting s(c, runs, 64);
  Buffer<QueryTile> tiles(s.tiles.size());
  std::copy(s.tiles.begin(), s.tiles.end(), tiles.begin());
  const Buffer<u32> n_tiles = {static_cast<u32>(tiles.size())};
  launch(PrefillAttention{.type = &s.type,
                          .dim = c.dim,
                          .out = s.out.data(),
                          .q = s.q.data(),
                          .pages = &s.pages,
                          .arguments = s.args,
                          .tiles = tiles.data(),
                          .n_tiles = n_tiles.data(),
                          .max_tiles = n_tiles[0] + 1,
                          .tables = &s.sequences});
  s.check();
}

void check_decode(const Case& c, const std::vector<Run>& runs, u32 max_queries,
                  u32 split_tokens = 256) {
  Setting s(c, runs, max_queries);
  const Buffer<AttentionWork> work = divide_work(s.tiles, c.causal, split_tokens);
  const u32 n = static_cast<u32>(work.size());
  const Buffer<u32> n_work = {n - 2};
  Buffer<float> partial_out(n * max_queries * c.n_heads * c.dim),
      partial_ml(n * max_queries * c.n_heads * 2);
  launch(DecodeAttention{.type = &s.type,
                         .dim = c.dim,
                         .out = s.out.data(),
                         .partial_out = partial_out.data(),
                         .partial_ml = partial_ml.data(),
                         .q = s.q.data(),
                         .pages = &s.pages,
                         .arguments = s.args,
                         .tiles = nullptr,
                         .work = work.data(),
                         .n_work = n_work.data(),
                         .max_work = n,
                         .tables = &s.sequences});
  s.check();
}

Case random_case(Random& random) {
  const u32 dims[] = {16, 32, 64, 80, 96, 128, 256};
  const u32 n_kv_heads = random.between(1, 3);
  const bool causal = random.below(4) != 0;
  return {static_cast<int>(random.between(1, 4)),
          random.one_of(dims),
          n_kv_heads * random.between(1, 6),
          n_kv_heads,
          random.between(1, 40),
          random.below(2) * random.between(1, 200),
          static_cast<float>(random.below(2) * 20),
          random.below(2) == 0,
          causal};
}

void check_random_prefill(Random& random) {
  const u32 first = random.between(1, 90), second = random.between(1, 40);
  check_prefill(random_case(random), {{first + random.below(60), first}, {second, second}});
}

void check_random_decode(Random& random) {
  const u32 most = random.between(1, 16);
  std::vector<Run> runs;
  for (u32 n = random.between(1, 3); n > 0; --n) {
    const u32 queries = random.between(1, most);
    runs.push_back({queries + random.below(600), queries});
  }
  check_decode(random_case(random), runs, most, 64 * random.between(1, 6));
}

}  // namespace

Buffer<AttentionWork> kernel_test::divide_work(const std::vector<QueryTile>& tiles, bool causal,
                                               u32 split_tokens) {
  std::vector<AttentionWork> list;
  for (const QueryTile& tile : tiles) {
    const u32 end = causal ? tile.first_position + tile.n_queries : tile.n_keys;
    const u32 n_splits = blocks_for(end, split_tokens);
    for (u32 i = 0; i < n_splits; ++i) list.push_back({tile, i, split_tokens, n_splits});
  }
  list.resize(list.size() + 2);
  return Buffer<AttentionWork>(list);
}

TEST(attention_over_pages_beyond_4_gib) {
  const FarPages far;
  if (!far) return;
  check_prefill({1, 64, 2, 1, 16, 0, 0, false}, {{70, 9}});
  check_decode({1, 64, 4, 2, 16, 0, 0, false}, {{90, 1}, {33, 1}}, 1);
  check_decode({3, 96, 2, 1, 16, 20, 0, false}, {{60, 3}}, 4);
}
TEST_RANDOM(random_prefill_attention, check_random_prefill, 4)
TEST_RANDOM(random_decode_attention, check_random_decode, 6)
TEST(prefill_attention_of_one_token) { check_prefill({1, 64, 2, 1, 16, 0, 0, false}, {{1, 1}}); }
TEST(prefill_attention_of_two_tiles) {
  check_prefill({1, 128, 2, 1, 16, 0, 0, false}, {{131, 70}});
}
TEST(prefill_attention_bf16_of_odd_pages) {
  check_prefill({2, 80, 2, 2, 7, 0, 0, false}, {{90, 64}, {33, 33}});
}
TEST(prefill_attention_q8_in_a_window) {
  check_prefill({3, 96, 2, 1, 32, 40, 0, false}, {{150, 66}});
}
TEST(prefill_attention_q4_in_a_window) {
  check_prefill({4, 80, 2, 1, 32, 40, 0, false}, {{150, 66}});
}
TEST(prefill_attention_of_wide_heads) {
  check_prefill({1, 256, 1, 1, 16, 0, 30, false}, {{70, 70}});
}
TEST(prefill_attention_with_sinks) { check_prefill({1, 64, 4, 2, 16, 16, 0, true}, {{50, 50}}); }
TEST(prefill_attention_of_small_heads) { check_prefill({1, 16, 2, 1, 8, 0, 0, false}, {{40, 20}}); }
TEST(prefill_attention_without_causality) {
  check_prefill({1, 32, 2, 1, 8, 0, 0, false, false}, {{80, 70}});
}

TEST(decode_attention_of_one_token) { check_decode({1, 64, 4, 2, 16, 0, 0, false}, {{1, 1}}, 1); }
TEST(decode_attention_of_a_batch) {
  check_decode({1, 128, 8, 2, 16, 0, 0, false}, {{300, 1}, {17, 1}, {256, 1}, {257, 1}}, 1);
}
TEST(decode_attention_bf16_of_many_heads) {
  check_decode({2, 80, 40, 1, 5, 0, 0, false}, {{61, 1}}, 1);
}
TEST(decode_attention_q8_in_a_window) {
  check_decode({3, 96, 4, 4, 32, 100, 0, false}, {{600, 1}, {90, 1}}, 1);
}
TEST(decode_attention_q4_in_a_window) {
  check_decode({4, 80, 4, 4, 32, 100, 0, false}, {{600, 1}, {90, 1}}, 1);
}
TEST(decode_attention_in_a_window_of_long_splits) {
  check_decode({1, 64, 4, 2, 16, 300, 0, false}, {{3300, 2}, {2000, 1}}, 2, 1024);
  check_decode({3, 32, 4, 2, 16, 70, 0, true, false}, {{1500, 3}}, 4, 320);
}
TEST(decode_attention_of_wide_heads) {
  check_decode({1, 256, 4, 1, 16, 0, 20, false}, {{90, 1}}, 1);
}
TEST(decode_attention_with_sinks) {
  check_decode({1, 64, 8, 1, 16, 128, 0, true}, {{400, 1}, {3, 1}}, 1);
  // Few positions on either side of a split, so that the sink has a large part.
  check_decode({1, 64, 8, 1, 16, 6, 0, true}, {{259, 1}}, 1);
}
TEST(decode_attention_of_several_queries) {
  check_decode({1, 32, 6, 2, 8, 0, 0, false}, {{280, 16}, {40, 3}, {5, 5}}, 16);
}
TEST(decode_attention_of_queries_across_a_split) {
  check_decode({1, 16, 4, 1, 8, 20, 0, false}, {{262, 12}}, 16);
  check_decode({1, 16, 4, 1, 8, 0, 0, false}, {{700, 3}}, 4, 64);
}
TEST(decode_attention_q8_of_draft_tokens_with_all_options) {
  check_decode({3, 64, 6, 2, 16, 50, 15, true}, {{300, 16}, {40, 5}, {9, 1}}, 16);
}
TEST(decode_attention_q4_of_draft_tokens) {
  check_decode({4, 16, 6, 2, 7, 50, 15, true}, {{300, 16}, {40, 5}, {9, 1}}, 16);
  check_decode({4, 256, 4, 2, 16, 0, 0, false}, {{130, 3}, {40, 5}}, 5);
}
TEST(decode_attention_without_causality) {
  check_decode({1, 64, 2, 2, 8, 0, 0, false, false}, {{70, 9}}, 4);
}
