#pragma once

// One split of positions: the rows and positions that see each other, tiles of rows, runs of
// adjacent positions in pages, and the softmax of a row.

#include "attention_cache.h"
#include "vector_math.h"

namespace forge::cpu::FORGE_TARGET {

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
    // The next run begins at a pair of positions, if pages have whole pairs.
    const int most = static_cast<int>(kAttentionRun) - i % 2;
    if (n > most) n = most;
    if (n > split.any.high - i) n = split.any.high - i;
    body(i, n, slot, page_at(split.rows, position), i + n);
    i += n;
  }
}

// Calls body(row, n, positions) for the rows of each tile and the positions of a run that they
// attend to, in order: together for multiples of `align` positions that all of them attend to, and
// alone for the others, since a weight of zero times a NaN is NaN.
template <int align, class Body>
FORGE_INLINE void for_value_parts(const Split& split, int first, int n, Body body) {
  for_tiles(split, [&](uint32_t row, uint32_t count, const Spans& spans) {
    Span common = meet(spans.common, {first, first + n});
    common = {(common.low + align - 1) / align * align, common.high / align * align};
    const bool together = common.high > common.low;
    const int middle = together ? common.low : first + n;
    const auto add_alone = [&](Span part) {
      for (uint32_t r = row; r < row + count; ++r) {
        const Span span = meet(split.seen[r], part);
        if (span.low < span.high) body(r, 1, span);
      }
    };
    if (first < middle) add_alone({first, middle});
    if (!together) return;
    body(row, count, common);
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
inline void softmax_row(Span seen, float softcap, const MaskRow& mask, float* scores,
                        float* row_largest, float* row_total) {
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

// Computes the softmax of all rows.
inline void softmax_rows(const Split& split) {
  for (uint32_t row = 0; row < split.n_rows; ++row) {
    const Span seen = split.seen[row];
    if (seen.low == seen.high) {
      split.to.largest[row] = -__builtin_inff();
      split.to.total[row] = 0;
    } else {
      softmax_row(seen, split.rows.softcap, mask_of(split, row), split.scores + row * kScoreStride,
                  split.to.largest + row, split.to.total + row);
    }
  }
}

// Multiplied with queries: with a soft-cap, the score is divided by the cap here and multiplied by
// it after the tanh.
FORGE_INLINE float query_factor(const AttentionRows& rows) {
  return rows.softcap > 0 ? rows.scale / rows.softcap : rows.scale * kLog2E;
}

// Calls body(split) with the split that begins at `begin`, whose queries are not set.
template <class Body>
FORGE_INLINE void with_split(const AttentionRows& rows, int32_t begin, const AttentionPartial& out,
                             float* scratch, Body body) {
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
  body(Split{rows, n_rows, begin, spans_of(seen, n_rows).any, seen, tiles, scratch, q, unpacked,
             out});
}

}  // namespace forge::cpu::FORGE_TARGET
