// Products fused with the norm before them, and with the rotation and the storing of keys and
// values after them: the same bits as separate launches.

#include "launch.h"

namespace {

struct Case {
  u32 n_heads, n_kv_heads, k_dim, v_dim, page_tokens;
  u32 n_freqs, interleaved;
  u32 at_once, split;
  bool has_bias, has_list;
};

constexpr u32 kRows = 3;

void check(const WeightKind& kind, u32 element, u32 cols, const Case& c) {
  Random random(kind.type + c.k_dim + c.n_heads);
  const KvType& type = kv_types[element];
  const u32 page = c.page_tokens;
  // The first position of a page, a middle one, and the last of a page; branches of two tokens.
  const Buffer<i32> positions = {i32(2 * page), 2, i32(page - 1)}, sequence_of = {0, 1, 0};
  Buffer<RowCopy> copies = {{0, 2}, {2, 2}};
  const Buffer<u32> n_copies = {2}, n_rows = {kRows}, list = {2, 0};
  const Buffer<u32> n_multiplied = {c.has_list ? 2 : kRows};
  const Sequences sequences(random, {page * 2 + 1, 3, page * 2 + 1}, page);
  const u32 q_cols = c.n_heads * c.k_dim;
  const u32 rows = q_cols + c.n_kv_heads * (c.k_dim + c.v_dim);
  const DeviceWeight weight = random_weight(random, kind, rows, cols);
  const WeightPieces pieces(weight);
  const auto x = random_floats(random, u64{kRows} * cols), norm = random_floats(random, cols);
  const auto bias = random_floats(random, rows);
  const auto rope = random_floats(random, kRows * 2 * c.n_freqs);
  metal_args::RmsNormMatvecArgs normed = {
      .product = pieces.in(
          matvec_args(weight, rows, c.split, {c.has_bias ? bias.data() : nullptr, nullptr, 1, 0})),
      .eps = 0.25f,
      .offset = 0.75f};
  normed.product.has_row_list = c.has_list;
  const emulator::MetalLaunch shape = {
      {blocks_for(rows, metal_args::kMatvecSimdgroups / c.split * metal_args::kMatvecRows),
       blocks_for(kRows, c.at_once)},
      {256}};
  const std::string list_of = "<" + weight.format + ", " + std::to_string(c.at_once) + ">";
  const float* biases = c.has_bias ? bias.data() : nullptr;
  const u32* listed = c.has_list ? list.data() : nullptr;
  const float* angles = c.n_freqs ? rope.data() : nullptr;
  Pages expected_pages(type, sequences.n_pages, page, c.n_kv_heads, c.k_dim, c.v_dim),
      pages(type, sequences.n_pages, page, c.n_kv_heads, c.k_dim, c.v_dim);
  const RopeAppendArgs append = {.kv = pages.kernel_pages(),
                                 .page_stride = sequences.page_stride,
                                 .n_heads = c.n_heads,
                                 .q_norm_width = 0,
                                 .k_norm_width = 0,
                                 .eps = 0,
                                 .offset = 0,
                                 .n_freqs = c.n_freqs,
                                 .first_rotated = 0,
                                 .interleaved = c.interleaved};

  Buffer<float> qkv(kRows * rows), expected(kRows * q_cols), q(kRows * q_cols);
  launch_metal("rms_norm_matvec" + list_of, shape, normed, qkv.data(), x.data(), norm.data(),
               pieces.data(0), pieces.data(1), pieces.data(2), n_multiplied.data(), listed, biases,
               kNothing);
  launch<RopeAppend>(kRows,
                     {.q = expected.data(),
                      .qkv = qkv.data(),
                      .pages = expected_pages.data.data(),
                      .positions = positions.data(),
                      .sequences = sequence_of.data(),
                      .page_tables = sequences.page_tables.data(),
                      .n_tokens = n_rows.data(),
                      .copies = copies.data(),
                      .n_copies = n_copies.data(),
                      .q_norm = nullptr,
                      .k_norm = nullptr,
                      .rope = angles},
                     append, std::string("<") + type.name + ">");
  launch_metal("rms_norm_qkv" + list_of, shape,
               metal_args::RmsNormQkvArgs{normed, append, 0, element}, q.data(), x.data(),
               norm.data(), pieces.data(0), pieces.data(1), pieces.data(2), n_multiplied.data(),
               listed, biases, pages.data.data(), positions.data(), sequence_of.data(),
               sequences.page_tables.data(), copies.data(), n_copies.data(), angles);

  for (u32 t = 0; t < kRows; ++t) {
    if (c.has_list && t == 1) continue;
    for (u32 i = 0; i < q_cols; ++i) EXPECT(q[t * q_cols + i] == expected[t * q_cols + i]);
    const auto position = static_cast<u32>(positions[t]);
    const auto expect_kept = [&](u32 sequence) {
      const u32 at = sequences.page(sequence, position, page), slot = position % page;
      for (u32 h = 0; h < c.n_kv_heads; ++h) {
        for (u32 i = 0; i < c.k_dim; ++i) {
          EXPECT(pages.k(at, slot, h, i) == expected_pages.k(at, slot, h, i));
        }
        for (u32 i = 0; i < c.v_dim; ++i) {
          EXPECT(pages.v(at, slot, h, i) == expected_pages.v(at, slot, h, i));
        }
      }
    };
    expect_kept(static_cast<u32>(sequence_of[t]));
    for (const RowCopy& copy : copies) {
      if (copy.row == t) expect_kept(copy.sequence);
    }
  }
}

void check_random(Random& random) {
  const u32 n_kv_heads = random.between(1, 3), k_dim = 2 * random.between(1, 40);
  const u32 at_once = 1u << random.below(4), split = 1u << random.below(3);
  check(random.one_of(fast_kinds), random.below(3), 256 * random.between(1, 3),
        {n_kv_heads * random.between(1, 4), n_kv_heads, k_dim, 2 * random.between(1, 40),
         random.between(3, 20), random.below(k_dim / 2 + 1), random.below(2), at_once, split,
         random.below(2) != 0, random.below(2) != 0});
}

}  // namespace

TEST(rms_norm_qkv_of_one_token) {
  check(fast_kinds[5], 1, 512, {4, 2, 16, 16, 4, 8, 0, 1, 1, false, false});
}
TEST(rms_norm_qkv_of_several_tokens) {
  check(fast_kinds[0], 0, 173, {3, 1, 20, 6, 3, 6, 0, 4, 2, true, true});
  check(fast_kinds[2], 2, 256, {2, 2, 8, 10, 5, 3, 1, 8, 4, true, false});
}
TEST(rms_norm_qkv_without_rotation) {
  check(fast_kinds[6], 1, 256, {2, 1, 12, 4, 4, 0, 0, 2, 1, false, false});
}
TEST_RANDOM(random_rms_norm_qkv, check_random, 10)
