// Attention over one split of positions: scores, softmax, and the weighted sum of values, each over
// runs of positions that are adjacent in a page; and the merge of splits. Few query rows read the
// cache directly. Many query rows, and heads whose values are in their keys, unpack each run to
// floats once. T. Dao et al., "FlashAttention", 2022, and "Flash-Decoding", 2023.

#include "attention_unpack.h"
#include "../kernel_table.h"
#include "vector_math.h"

namespace forge::cpu::FORGE_TARGET {

namespace {

// Positions [low, high), relative to the start of the split; empty if low == high.
struct Span {
  int low;
  int high;
};

FORGE_INLINE Span meet(Span a, Span b) {
  const int low = a.low > b.low ? a.low : b.low;
  const int high = a.high < b.high ? a.high : b.high;
  return {low, high > low ? high : low};
}

// The positions of the split that a row attends to.
FORGE_INLINE Span seen_by(const AttentionRows& rows, uint32_t row, int32_t begin) {
  const Visible seen = rows.visible[row / rows.n_heads];
  return meet({seen.first - begin, seen.last + 1 - begin}, {0, kAttentionSplit});
}

// The positions of the split that all of some rows attend to, and those that any of them does.
struct Spans {
  Span common;
  Span any;
};
FORGE_INLINE Spans spans_of(const Span* seen, uint32_t n) {
  Spans spans = {{0, kAttentionSplit}, {kAttentionSplit, 0}};
  for (uint32_t row = 0; row < n; ++row) {
    spans.common = meet(spans.common, seen[row]);
    if (seen[row].low == seen[row].high) continue;
    if (seen[row].low < spans.any.low) spans.any.low = seen[row].low;
    if (seen[row].high > spans.any.high) spans.any.high = seen[row].high;
  }
  if (spans.any.high <= spans.any.low) spans.any = {0, 0};
  return spans;
}

// The work on one split. `q` holds the queries of the rows, multiplied by the scale of the scores.
struct Split {
  const AttentionRows& rows;
  uint32_t n_rows;
  int32_t begin;
  Span any;
  const Span* seen;    // by each row
  const Spans* tiles;  // by each kTileTokens rows
  float* scores;
  float* q;
  float* unpacked;
  const AttentionPartial& to;
};

// Calls body(first row, n, spans) for each tile of rows.
template <class Body>
FORGE_INLINE void for_tiles(const Split& split, Body body) {
  for (uint32_t row = 0; row < split.n_rows; row += kTileTokens) {
    const uint32_t left = split.n_rows - row;
    body(row, left < kTileTokens ? left : kTileTokens, split.tiles[row / kTileTokens]);
  }
}

FORGE_INLINE uint64_t page_at(const AttentionRows& rows, int32_t position) {
  const int32_t index = position / static_cast<int32_t>(rows.page_tokens);
  return static_cast<uint64_t>(rows.pages[index]) * rows.kv.page_bytes;
}

// Calls body(first, n, slot, page offset, next position) for each run of the split.
template <class Body>
FORGE_INLINE void for_runs(const Split& split, Body body) {
  const int32_t page_tokens = static_cast<int32_t>(split.rows.page_tokens);
  for (int i = split.any.low; i < split.any.high;) {
    const int32_t position = split.begin + i;
    const int32_t slot = position % page_tokens;
    int n = page_tokens - slot;
    if (n > static_cast<int>(kAttentionRun)) n = kAttentionRun;
    if (n > split.any.high - i) n = split.any.high - i;
    body(i, n, slot, page_at(split.rows, position), i + n);
    i += n;
  }
}

template <class Cache>
struct ScoreRows {
  const Split& split;
  uint32_t row;
  const Run& run_;
  int first;
  Span span;
  template <int n_rows>
  void run() const {
    const uint32_t dim = split.rows.k_head_dim;
    score_run<Cache, n_rows>(split.q + row * dim, dim, run_, span.low - first, span.high - first,
                             split.scores + row * kScoreStride + first);
  }
};

// Scores of all rows against the positions of a run that they attend to.
template <class Cache>
void score_rows(const Split& split, const Run& run, int first, int n) {
  for_tiles(split, [&](uint32_t row, uint32_t count, const Spans& spans) {
    const Span span = meet(spans.any, {first, first + n});
    if (span.low == span.high) return;
    for_row_count(count, ScoreRows<Cache>{split, row, run, first, span});
  });
}

template <class Cache>
struct ValueRows {
  const Split& split;
  uint32_t row;
  const Run& run_;
  int first;
  Span span;
  template <int n_rows>
  void run() const {
    const uint32_t out_dim = padded_dim(split.rows.v_head_dim);
    value_run<Cache, n_rows>(run_, span.low - first, span.high - first,
                             split.scores + row * kScoreStride + first, out_dim,
                             split.to.out + row * out_dim);
  }
};

// Adds the values of a run to all rows. Positions that only some rows of a tile attend to are added
// to those rows only: a weight of zero times a NaN is NaN.
template <class Cache>
void add_values(const Split& split, const Run& run, int first, int n) {
  for_tiles(split, [&](uint32_t row, uint32_t count, const Spans& spans) {
    const Span common = meet(spans.common, {first, first + n});
    const bool together = common.high > common.low;
    const int middle = together ? common.low : first + n;
    const auto add_alone = [&](Span part) {
      for (uint32_t r = row; r < row + count; ++r) {
        const Span span = meet(split.seen[r], part);
        if (span.low < span.high) ValueRows<Cache>{split, r, run, first, span}.template run<1>();
      }
    };
    if (first < middle) add_alone({first, middle});
    if (!together) return;
    for_row_count(count, ValueRows<Cache>{split, row, run, first, common});
    if (common.high < first + n) add_alone({common.high, first + n});
  });
}

// The mask of a row, from the start of the split.
struct MaskRow {
  const uint32_t* words;  // null: none
  bool is_bits;
  int32_t begin;  // position of the start of the split
};

// The number that a mask adds to the score of position `i` of the split.
FORGE_INLINE float mask_bias(const MaskRow& mask, int i) {
  const uint32_t position = static_cast<uint32_t>(mask.begin + i);
  if (mask.is_bits) return mask.words[position / 32] >> position % 32 & 1 ? 0 : -__builtin_inff();
  float bias;
  memcpy(&bias, mask.words + position, sizeof bias);
  return bias;
}

FORGE_INLINE MaskRow mask_of(const Split& split, uint32_t row) {
  const AttentionRows& rows = split.rows;
  if (!rows.mask) return {nullptr, false, 0};
  const uint64_t token = row / rows.n_heads, head = rows.mask_heads == 1 ? 0 : row % rows.n_heads;
  const uint32_t* words = rows.mask + (token * rows.mask_heads + head) * rows.mask_stride;
  return {words, rows.mask_is_bits, split.begin};
}

// Replaces the scores of a row by 2^(score - largest), and returns their largest and sum.
void softmax_row(Span seen, float softcap, const MaskRow& mask, float* scores, float* row_largest,
                 float* row_total) {
  // Vectors start at multiples of kLanes from the start of the split, so that the scores added in
  // one lane do not depend on the rows that share the tile.
  const int first = seen.low / kLanes * kLanes;
  const int end = (seen.high + kLanes - 1) / kLanes * kLanes;
  for (int i = first; i < seen.low; ++i) scores[i] = -__builtin_inff();
  for (int i = seen.high; i < end; ++i) scores[i] = -__builtin_inff();
  if (softcap > 0) {
    const Vec cap = set(softcap * kLog2E);
    for (int i = first; i < end; i += kLanes) store(scores + i, cap * tanh(load(scores + i)));
    // tanh(-infinity) is -1.
    for (int i = first; i < seen.low; ++i) scores[i] = -__builtin_inff();
    for (int i = seen.high; i < end; ++i) scores[i] = -__builtin_inff();
  }
  if (mask.words) {
    for (int i = seen.low; i < seen.high; ++i) scores[i] += mask_bias(mask, i) * kLog2E;
  }
  Vec most = set(-__builtin_inff());
  for (int i = first; i < end; i += kLanes) most = max(most, load(scores + i));
  const float top = largest(most);
  if (!(top > -__builtin_inff())) {
    // All positions are hidden, or no score is a number.
    bool is_hidden = mask.words != nullptr;
    for (int i = seen.low; i < seen.high; ++i) is_hidden &= scores[i] == -__builtin_inff();
    for (int i = first; i < end; ++i) scores[i] = 0;
    *row_largest = is_hidden ? -__builtin_inff() : __builtin_nanf("");
    *row_total = is_hidden ? 0 : __builtin_nanf("");
    return;
  }
  Vec total = zero();
  for (int i = first; i < end; i += kLanes) {
    const Vec weight = exp2_of_negative(load(scores + i) - set(top));
    total = total + weight;
    store(scores + i, weight);
  }
  *row_largest = top;
  *row_total = sum(total);
}

void scale_queries(const Split& split) {
  const AttentionRows& rows = split.rows;
  // With a soft-cap, the score is divided by the cap here and multiplied by it after the tanh.
  const float factor = rows.softcap > 0 ? rows.scale / rows.softcap : rows.scale * kLog2E;
  for (uint32_t t = 0; t < rows.n_tokens; ++t) {
    const uint64_t n = static_cast<uint64_t>(rows.n_heads) * rows.k_head_dim;
    scale(rows.q + t * rows.q_stride, n, factor, split.q + t * n);
  }
}

template <class Cache>
void attend(const Split& split) {
  const AttentionRows& rows = split.rows;
  const KvHead& kv = rows.kv;
  const uint64_t k_stride = rows.page_tokens;
  const uint64_t v_stride = rows.values_in_keys ? rows.k_head_dim : rows.v_head_dim;
  const uint64_t v_blocks = (v_stride + kKvBlock - 1) / kKvBlock;
  const bool unpacks = rows.values_in_keys || split.n_rows > kTileTokens;
  // A run stored as rows, like values.
  const auto run_of_rows = [&](int32_t slot, uint64_t page, const uint8_t* ahead) {
    return Run{kv.v + page + Cache::value_at(v_stride, static_cast<uint64_t>(slot), 0), v_stride,
               kv.v_scales + page + slot * v_blocks * 2, v_blocks, ahead};
  };
  const int32_t seen_end = split.begin + split.any.high;
  const uint8_t* first_values = kv.v + page_at(rows, split.begin + split.any.low);

  for_runs(split, [&](int first, int n, int32_t slot, uint64_t page, int next) {
    const uint8_t* ahead = next < split.any.high ? kv.k + page_at(rows, split.begin + next)
                                                 : first_values;
    const Run run = {kv.k + page + slot * Cache::kKeyBytes, k_stride, kv.k_scales + page + slot * 2,
                     k_stride, ahead};
    if (rows.values_in_keys) {
      const Run keys = unpack_key_rows<Cache>(run_of_rows(slot, page, ahead), rows.k_head_dim, n,
                                              split.unpacked);
      score_rows<Unpacked>(split, keys, first, n);
    } else if (unpacks) {
      const Run keys = unpack_keys<Cache>(run, rows.k_head_dim, n, split.unpacked);
      score_rows<Unpacked>(split, keys, first, n);
    } else {
      score_rows<Cache>(split, run, first, n);
    }
  });
  for (uint32_t row = 0; row < split.n_rows; ++row) {
    const Span seen = split.seen[row];
    if (seen.low == seen.high) {
      split.to.largest[row] = -__builtin_inff();
      split.to.total[row] = 0;
    } else {
      softmax_row(seen, rows.softcap, mask_of(split, row), split.scores + row * kScoreStride,
                  split.to.largest + row, split.to.total + row);
    }
  }
  const uint32_t out_dim = padded_dim(rows.v_head_dim);
  memset(split.to.out, 0, size_t{split.n_rows} * out_dim * sizeof(float));
  const bool goes_on = seen_end <= rows.visible[rows.n_tokens - 1].last;
  for_runs(split, [&](int first, int n, int32_t slot, uint64_t page, int next) {
    const uint8_t* here = kv.v + page + Cache::value_at(v_stride, static_cast<uint64_t>(slot), 0);
    const uint8_t* ahead = next < split.any.high ? kv.v + page_at(rows, split.begin + next)
                           : goes_on             ? kv.k + page_at(rows, seen_end)
                                                 : here;
    const Run run = run_of_rows(slot, page, ahead);
    if (unpacks) {
      const Run values = unpack_values<Cache>(run, out_dim, n, split.unpacked);
      add_values<Unpacked>(split, values, first, n);
    } else {
      add_values<Cache>(split, run, first, n);
    }
  });
}

// 2^x of one number, with the arithmetic of the vectors.
FORGE_INLINE float exp2_of(float x) {
  float lanes[kLanes];
  store(lanes, exp2_of_negative(set(x)));
  return lanes[0];
}

}  // namespace

void attention_split(const AttentionRows& rows, int32_t begin, const AttentionPartial& out,
                     float* scratch) {
  const uint32_t n_rows = rows.n_tokens * rows.n_heads;
  float* q = scratch + kAttentionRows * kScoreStride;
  float* unpacked = q + static_cast<uint64_t>(kAttentionRows) * rows.k_head_dim;
  Span seen[kAttentionRows];
  Spans tiles[(kAttentionRows + kTileTokens - 1) / kTileTokens];
  for (uint32_t row = 0; row < n_rows; ++row) seen[row] = seen_by(rows, row, begin);
  for (uint32_t row = 0; row < n_rows; row += kTileTokens) {
    const uint32_t left = n_rows - row;
    tiles[row / kTileTokens] = spans_of(seen + row, left < kTileTokens ? left : kTileTokens);
  }
  const Split split = {rows,  n_rows,  begin, spans_of(seen, n_rows).any, seen, tiles,
                       scratch, q, unpacked, out};
  scale_queries(split);
  switch (rows.type) {
    case WeightType::F16: attend<CacheF16>(split); break;
    case WeightType::BF16: attend<CacheBF16>(split); break;
    case WeightType::Q8_0: attend<CacheQ8>(split); break;
    case WeightType::Q4_0: attend<CacheQ4>(split); break;
    default: attend<CacheF32>(split); break;
  }
}

void attention_merge(uint32_t n_rows, uint32_t v_head_dim, const AttentionPartial& into,
                     const AttentionPartial& more) {
  const uint32_t dim = padded_dim(v_head_dim);
  for (uint32_t r = 0; r < n_rows; ++r) {
    if (more.largest[r] == -__builtin_inff()) continue;
    const float top = into.largest[r] > more.largest[r] ? into.largest[r] : more.largest[r];
    const float old_scale = exp2_of(into.largest[r] - top);
    const float new_scale = exp2_of(more.largest[r] - top);
    into.largest[r] = top;
    into.total[r] = into.total[r] * old_scale + more.total[r] * new_scale;
    float* out = into.out + static_cast<uint64_t>(r) * dim;
    scale(out, dim, old_scale, out);
    add_scaled(out, more.out + static_cast<uint64_t>(r) * dim, new_scale, dim);
  }
}

void attention_finish(const AttentionPartial& partial, uint32_t row, uint32_t v_head_dim,
                      const float* sink, float* out) {
  const float* values = partial.out + static_cast<uint64_t>(row) * padded_dim(v_head_dim);
  float total = partial.total[row];
  float values_scale = 1;
  if (sink) {
    const float score = *sink * kLog2E;
    const float top = score > partial.largest[row] ? score : partial.largest[row];
    values_scale = exp2_of(partial.largest[row] - top);
    total = total * values_scale + exp2_of(score - top);
  }
  // A row that sees nothing has zeros for values.
  scale(values, v_head_dim, total == 0 ? 0 : values_scale / total, out);
}

}  // namespace forge::cpu::FORGE_TARGET
