// Attention over one split of positions: scores, softmax, and the weighted sum of values.
//
// Keys lie with positions next to each other, so the scores of kLanes positions are a vector and no
// sum over lanes is needed; values lie with dimensions next to each other, for the same reason. Up
// to kTileTokens query rows share what is loaded. A score is summed over the dimensions in order
// and an output over the positions in order, each in a lane of its own, so neither depends on how
// rows and positions are tiled. T. Dao et al., "FlashAttention", 2022; split over KV as in
// "Flash-Decoding", T. Dao et al., 2023.

#include "kernels.h"
#include "vector_math.h"

namespace forge::cpu::FORGE_TARGET {

namespace {

constexpr int kWide = 4;  // vectors of positions or dimensions that a tile covers at once

template <bool is_f16>
struct Element {
  static constexpr uint64_t kBytes = is_f16 ? 2 : 4;
  FORGE_INLINE Vec load_at(const uint8_t* base, uint64_t i) {
    const uint8_t* at = base + i * kBytes;
    if constexpr (is_f16) return load_f16(at);
    Vec a;
    memcpy(&a, at, sizeof a);
    return a;
  }
};

FORGE_INLINE const float* query_row(const AttentionRows& rows, uint32_t i) {
  return rows.q + i / rows.n_heads * rows.q_stride +
         static_cast<uint64_t>(i % rows.n_heads) * rows.k_head_dim;
}

// Where the page of a position lies.
FORGE_INLINE uint64_t page_offset(const AttentionRows& rows, int32_t position) {
  const int32_t index = position / static_cast<int32_t>(rows.page_tokens);
  return static_cast<uint64_t>(rows.pages[index]) * rows.page_bytes;
}

// The part of the split from `begin` on that rows `first` to `first + n - 1` see; empty when low ==
// high.
struct Span {
  int32_t low;
  int32_t high;
};
FORGE_INLINE Span visible_span(const AttentionRows& rows, uint32_t first, uint32_t n,
                               int32_t begin) {
  const int32_t end = begin + static_cast<int32_t>(kAttentionSplit);
  Span span = {end, begin};
  for (uint32_t t = first / rows.n_heads; t <= (first + n - 1) / rows.n_heads; ++t) {
    const Visible seen = rows.visible[t];
    if (seen.first < span.low) span.low = seen.first;
    if (seen.last + 1 > span.high) span.high = seen.last + 1;
  }
  if (span.low < begin) span.low = begin;
  if (span.high > end) span.high = end;
  if (span.high <= span.low) span = {begin, begin};
  return span;
}

// scores[row][0 .. vectors * kLanes) = q . k for positions from `k` on, dimensions `stride` apart.
template <int n_rows, int vectors, bool is_f16>
FORGE_INLINE void score_tile(const float* const* q, uint32_t dim, const uint8_t* k, uint64_t stride,
                             float* scores) {
  Vec acc[n_rows][vectors];
  for (int r = 0; r < n_rows; ++r) {
    for (int v = 0; v < vectors; ++v) acc[r][v] = zero();
  }
  for (uint32_t d = 0; d < dim; ++d) {
    Vec key[vectors];
    for (int v = 0; v < vectors; ++v) {
      key[v] = Element<is_f16>::load_at(k, d * stride + v * kLanes);
    }
    for (int r = 0; r < n_rows; ++r) {
      const Vec query = set(q[r][d]);
      for (int v = 0; v < vectors; ++v) acc[r][v] = fma(query, key[v], acc[r][v]);
    }
  }
  for (int r = 0; r < n_rows; ++r) {
    for (int v = 0; v < vectors; ++v) store(scores + r * kAttentionStride + v * kLanes, acc[r][v]);
  }
}

template <int n_rows, bool is_f16>
void score_rows(const AttentionRows& rows, uint32_t row, Span span, int32_t begin, float* scores) {
  const float* q[n_rows];
  for (int r = 0; r < n_rows; ++r) q[r] = query_row(rows, row + r);
  const int32_t page_tokens = static_cast<int32_t>(rows.page_tokens);
  for (int32_t p = span.low; p < span.high;) {
    const int32_t slot = p % page_tokens;
    const int32_t in_page = page_tokens - slot;
    const int32_t run_end = in_page < span.high - p ? p + in_page : span.high;
    const uint8_t* k = rows.k + page_offset(rows, p) + slot * Element<is_f16>::kBytes;
    // The last vector may reach past the run: what it scores there is overwritten or never read.
    while (p < run_end) {
      float* to = scores + (p - begin);
      if (run_end - p > (kWide - 1) * kLanes) {
        score_tile<n_rows, kWide, is_f16>(q, rows.k_head_dim, k, rows.page_tokens, to);
        p += kWide * kLanes;
        k += kWide * kLanes * Element<is_f16>::kBytes;
      } else {
        score_tile<n_rows, 1, is_f16>(q, rows.k_head_dim, k, rows.page_tokens, to);
        p += kLanes;
        k += kLanes * Element<is_f16>::kBytes;
      }
    }
    p = run_end;
  }
}

// out[row][0 .. vectors * kLanes) = the sum of weight times value over the span.
template <int n_rows, int vectors, bool is_f16>
FORGE_INLINE void value_tile(const AttentionRows& rows, Span span, int32_t begin,
                             const float* weights, uint32_t dim, float* out) {
  Vec acc[n_rows][vectors];
  for (int r = 0; r < n_rows; ++r) {
    for (int v = 0; v < vectors; ++v) acc[r][v] = zero();
  }
  const int32_t page_tokens = static_cast<int32_t>(rows.page_tokens);
  for (int32_t p = span.low; p < span.high;) {
    const int32_t slot = p % page_tokens;
    const int32_t in_page = page_tokens - slot;
    const int32_t run_end = in_page < span.high - p ? p + in_page : span.high;
    const uint8_t* page = rows.v + page_offset(rows, p);
    uint64_t at = static_cast<uint64_t>(slot) * rows.v_head_dim + dim;
    for (; p < run_end; ++p, at += rows.v_head_dim) {
      Vec value[vectors];
      for (int v = 0; v < vectors; ++v) {
        value[v] = Element<is_f16>::load_at(page, at + v * kLanes);
      }
      for (int r = 0; r < n_rows; ++r) {
        const Vec weight = set(weights[r * kAttentionStride + (p - begin)]);
        for (int v = 0; v < vectors; ++v) acc[r][v] = fma(weight, value[v], acc[r][v]);
      }
    }
  }
  // Lanes past the end of a head hold what follows it in memory, and are dropped here.
  for (int r = 0; r < n_rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      const int left = static_cast<int>(rows.v_head_dim - dim) - v * kLanes;
      float* to = out + static_cast<uint64_t>(r) * rows.v_head_dim + dim + v * kLanes;
      if (left >= kLanes) {
        store(to, acc[r][v]);
      } else {
        store_n(to, acc[r][v], left);
      }
    }
  }
}

template <int n_rows, bool is_f16>
void value_rows(const AttentionRows& rows, Span span, int32_t begin, const float* weights,
                float* out) {
  uint32_t dim = 0;
  for (; dim + (kWide - 1) * kLanes < rows.v_head_dim; dim += kWide * kLanes) {
    value_tile<n_rows, kWide, is_f16>(rows, span, begin, weights, dim, out);
  }
  for (; dim < rows.v_head_dim; dim += kLanes) {
    value_tile<n_rows, 1, is_f16>(rows, span, begin, weights, dim, out);
  }
}

// Turns a row's scores into exp(score - largest) over `seen`, and into 0 over the rest of `span`.
void softmax_row(const AttentionRows& rows, Span seen, Span span, int32_t begin, float* scores,
                 float* row_largest, float* row_total) {
  static const float kIndex[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Vec index = load(kIndex);
  const int low = seen.low - begin, high = seen.high - begin;
  // Vectors start at multiples of kLanes from the split's begin, so that which scores add up in a
  // lane does not depend on the rows that share the tile.
  const int first = low / kLanes * kLanes;
  const Vec infinity = set(__builtin_inff());
  Vec most = negate(infinity);
  for (int i = first; i < high; i += kLanes) {
    Vec score = load(scores + i) * set(rows.scale);
    if (rows.softcap > 0) {
      score = set(rows.softcap) * tanh(score / set(rows.softcap));
    }
    const Vec position = index + set(static_cast<float>(i));
    score = select(less(position, set(static_cast<float>(low))), negate(infinity), score);
    score = select(less(position, set(static_cast<float>(high))), score, negate(infinity));
    most = max(most, score);
    store(scores + i, score);
  }
  const float top = largest(most);
  Vec total = zero();
  for (int i = first; i < high; i += kLanes) {
    const Vec weight = exp(load(scores + i) - set(top));
    total = total + weight;
    store(scores + i, weight);
  }
  *row_largest = top;
  *row_total = sum(total);
  for (int i = span.low - begin; i < first; ++i) scores[i] = 0;
  for (int i = (high + kLanes - 1) / kLanes * kLanes; i < span.high - begin; ++i) scores[i] = 0;
}

template <int n_rows, bool is_f16>
void attend(const AttentionRows& rows, uint32_t row, int32_t begin, const AttentionPartial& to,
            float* scores) {
  const Span span = visible_span(rows, row, n_rows, begin);
  float* out = to.out + static_cast<uint64_t>(row) * rows.v_head_dim;
  score_rows<n_rows, is_f16>(rows, row, span, begin, scores);
  for (uint32_t r = 0; r < n_rows; ++r) {
    const Span seen = visible_span(rows, row + r, 1, begin);
    float* row_scores = scores + r * kAttentionStride;
    if (seen.low == seen.high) {
      to.largest[row + r] = -__builtin_inff();
      to.total[row + r] = 0;
      for (int32_t i = span.low - begin; i < span.high - begin; ++i) row_scores[i] = 0;
    } else {
      softmax_row(rows, seen, span, begin, row_scores, to.largest + row + r, to.total + row + r);
    }
  }
  value_rows<n_rows, is_f16>(rows, span, begin, scores, out);
}

template <bool is_f16>
void attend_all(const AttentionRows& rows, int32_t begin, const AttentionPartial& to,
                float* scores) {
  const uint32_t n_rows = rows.n_tokens * rows.n_heads;
  for (uint32_t row = 0; row < n_rows; row += kTileTokens) {
    const uint32_t left = n_rows - row;
    switch (left < kTileTokens ? left : kTileTokens) {
#define FORGE_ROWS(count)                                                                    \
  case count:                                                                                \
    if constexpr (count <= kTileTokens) attend<count, is_f16>(rows, row, begin, to, scores); \
    break;
      FORGE_ROWS(1)
      FORGE_ROWS(2)
      FORGE_ROWS(3)
      FORGE_ROWS(4)
      FORGE_ROWS(5)
      FORGE_ROWS(6)
#undef FORGE_ROWS
      default: break;
    }
  }
}

// exp of one number, by the same arithmetic as everywhere else.
FORGE_INLINE float exp_of(float x) {
  float lanes[kLanes];
  store(lanes, exp(set(x)));
  return lanes[0];
}

}  // namespace

void attention_split(const AttentionRows& rows, int32_t begin, const AttentionPartial& out,
                     float* scratch) {
  if (rows.is_f16) {
    attend_all<true>(rows, begin, out, scratch);
  } else {
    attend_all<false>(rows, begin, out, scratch);
  }
}

void attention_merge(uint32_t n_rows, uint32_t v_head_dim, const AttentionPartial& into,
                     const AttentionPartial& more) {
  for (uint32_t r = 0; r < n_rows; ++r) {
    if (more.largest[r] == -__builtin_inff()) continue;
    const float top = into.largest[r] > more.largest[r] ? into.largest[r] : more.largest[r];
    const float old_scale = exp_of(into.largest[r] - top);
    const float new_scale = exp_of(more.largest[r] - top);
    into.largest[r] = top;
    into.total[r] = into.total[r] * old_scale + more.total[r] * new_scale;
    float* out = into.out + static_cast<uint64_t>(r) * v_head_dim;
    scale(out, v_head_dim, old_scale, out);
    add_scaled(out, more.out + static_cast<uint64_t>(r) * v_head_dim, new_scale, v_head_dim);
  }
}

void attention_finish(const AttentionPartial& partial, uint32_t row, uint32_t v_head_dim,
                      const float* sink, float* out) {
  const float* values = partial.out + static_cast<uint64_t>(row) * v_head_dim;
  float total = partial.total[row];
  float values_scale = 1;
  if (sink) {
    const float top = *sink > partial.largest[row] ? *sink : partial.largest[row];
    values_scale = exp_of(partial.largest[row] - top);
    total = total * values_scale + exp_of(*sink - top);
  }
  scale(values, v_head_dim, values_scale / total, out);
}

}  // namespace forge::cpu::FORGE_TARGET
