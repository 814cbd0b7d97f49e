// Division of a sequence's keys (Flash-Decoding) and combination of the partial results.
//
// Each part of the keys gives a normalized output and the log-sum-exp of its scores. The result is
// the mean of the outputs weighted by 2^lse, with the log-sum-exp of the parts' log-sum-exps.
#pragma once

#include "core/constants.h"
#include "core/key_window.cuh"
#include "decode/decode_tile.h"

namespace flash_attn {

// The division of a sequence's tiles of keys; the same for all its rows. Parts differ by one tile
// at most.
struct KeyParts {
  int first_tile;
  int n_tiles;
  int count;

  FA_DEVICE KeyParts(const DecodeArgs &args, const Sequence &sequence) {
    const KeyWindow window(args.score, sequence);
    const KeyTiles tiles = window.tiles<kDecodeKeys>(0, sequence.n_queries - 1);
    first_tile = tiles.first;
    n_tiles = tiles.end - tiles.first;
    const int useful = (n_tiles + kMinPartTiles - 1) / kMinPartTiles;
    count = useful < 1 ? 1 : useful < args.n_splits ? useful : args.n_splits;
  }

  FA_DEVICE KeyTiles tiles(int part) const {
    return {first_tile + part * n_tiles / count, first_tile + (part + 1) * n_tiles / count};
  }
};

// The row of a query's partial results.
FA_DEVICE int64_t partial_row(const DecodeArgs &args, const Sequence &sequence, int query,
                              int head) {
  const int64_t token = static_cast<int64_t>(sequence.index) * args.query.seqlen + query;
  return token * args.n_heads.value + head;
}

// The log-sum-exps of a row's parts.
FA_DEVICE float *partial_lse(const DecodeArgs &args, int64_t row) {
  return args.partial_lse + row * ((args.n_splits + 3) & ~3);
}

// Columns of a row whose parts are neighbours in memory.
inline constexpr int kPartColumns = 32;

// A part's result for a row, from a column on.
FA_DEVICE float *partial_out(const DecodeArgs &args, int64_t row, int part, int column) {
  const int64_t columns = row * (args.head_dim / kPartColumns) + column / kPartColumns;
  return args.partial_out + (columns * args.n_splits + part) * kPartColumns +
         column % kPartColumns;
}

// Eight neighbouring columns of a result under combination.
struct Combined {
  Floats4 value[2];
  float lse_log2;
};

FA_DEVICE void add_weighted(Floats4 &sum, float weight, const Floats4 &value) {
#pragma unroll
  for (int i = 0; i < 4; i++) sum[i] = fmaf(weight, value[i], sum[i]);
}

FA_DEVICE void scale(Combined &result, float factor) {
#pragma unroll
  for (int i = 0; i < 8; i++) result.value[i / 4][i % 4] *= factor;
}

// Combines the results of kCount warps in shared memory, of which `lse` and `values` are the
// first; the others follow at distances.
template <int kCount>
FA_DEVICE Combined combine_warps(const float *lse, int lse_step, const float *values,
                                 int values_step) {
  Combined result = {};
  float top = kMinusInfinity;
#pragma unroll
  for (int i = 0; i < kCount; i++) top = fmaxf(top, lse[i * lse_step]);
  if (top == kMinusInfinity) {
    result.lse_log2 = top;
    return result;
  }
  float total = 0;
#pragma unroll
  for (int i = 0; i < kCount; i++) {
    const float weight = exp2_fast(lse[i * lse_step] - top);
    total += weight;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      Floats4 value;
      load_floats(value, values + i * values_step + 4 * half);
      add_weighted(result.value[half], weight, value);
    }
  }
  scale(result, reciprocal_fast(total));
  result.lse_log2 = top + log2_fast(total);
  return result;
}

// Adds a head's sink in base 2, -infinity for none, rounds, and writes columns 8 chunk to
// 8 chunk + 7 of a query's output row.
template <class T>
FA_DEVICE void write_combined(const DecodeArgs &args, const Sequence &sequence, int query, int head,
                              int chunk, float sink, Combined result) {
  const float top = fmaxf(result.lse_log2, sink);
  if (top != kMinusInfinity) {
    const float own = exp2_fast(result.lse_log2 - top);
    const float total = own + exp2_fast(sink - top);
    scale(result, own * reciprocal_fast(total));
    result.lse_log2 = top + log2_fast(total);
  }
  Words4 words;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    words.word[i] = pack<T>(result.value[i / 2][i % 2 * 2], result.value[i / 2][i % 2 * 2 + 1]);
  }
  const QueryArgs &q = args.query;
  T *const row = static_cast<T *>(q.out) +
                 row_offset(q.out_stride, q.cu_seqlens != nullptr, sequence, query, head);
  store_16_bytes(row + 8 * chunk, words);
  if (chunk == 0 && q.lse != nullptr) {
    *lse_at(q, sequence, query, head) = result.lse_log2 * kLn2;
  }
}

FA_DEVICE float sink_log2(const DecodeArgs &args, int head) {
  return args.score.sinks == nullptr ? kMinusInfinity : args.score.sinks[head] * kLog2e;
}

}  // namespace flash_attn
