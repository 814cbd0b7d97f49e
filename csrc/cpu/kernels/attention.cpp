// Attention over one split of positions: scores, softmax, and the weighted sum of values, each over
// runs of positions that are adjacent in a page; and the merge of splits. Few query rows read the
// cache directly. Many query rows, and heads whose values are in their keys, unpack each run to
// floats once. T. Dao et al., "FlashAttention", 2022, and "Flash-Decoding", 2023.

#include "attention_split.h"
#include "attention_unpack.h"

namespace forge::cpu::FORGE_TARGET {

namespace {

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

// Adds the values of a run to all rows.
template <class Cache>
void add_values(const Split& split, const Run& run, int first, int n) {
  for_value_parts<1>(split, first, n, [&](uint32_t row, uint32_t count, Span span) {
    for_row_count(count, ValueRows<Cache>{split, row, run, first, span});
  });
}

void scale_queries(const Split& split) {
  const AttentionRows& rows = split.rows;
  const float factor = query_factor(rows);
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
  softmax_rows(split);
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
  with_split(rows, begin, out, scratch, [](const Split& split) {
    scale_queries(split);
    switch (split.rows.type) {
      case WeightType::F16: return attend<CacheF16>(split);
      case WeightType::BF16: return attend<CacheBF16>(split);
      case WeightType::Q8_0: return attend<CacheQ8>(split);
      case WeightType::Q4_0: return attend<CacheQ4>(split);
      default: return attend<CacheF32>(split);
    }
  });
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
