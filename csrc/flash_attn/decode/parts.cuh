// Division of a sequence's keys (Flash-Decoding) and combination of the partial results.
//
// Each part of the keys gives a normalized output and the log-sum-exp of its scores. The result is
// the mean of the outputs weighted by 2^lse, with the log-sum-exp of the parts' log-sum-exps.
#pragma once

#include "core/constants.h"
#include "core/key_window.cuh"
#include "decode/decode_tile.h"

namespace flash_attn {

/// The division of a sequence's tiles of keys; the same for all its rows.
struct KeyParts {
  int first_tile;
  int tiles_each;
  int count;

  FA_DEVICE KeyParts(const DecodeArgs &args, const Sequence &sequence) {
    const KeyWindow window(args.score, sequence);
    const KeyTiles tiles = window.tiles<kDecodeKeys>(0, sequence.n_queries - 1);
    const int n_tiles = tiles.end - tiles.first;
    const int evenly = (n_tiles + args.n_splits - 1) / args.n_splits;
    first_tile = tiles.first;
    tiles_each = evenly < kMinPartTiles ? kMinPartTiles : evenly;
    count = (n_tiles + tiles_each - 1) / tiles_each;
    if (count == 0) count = 1;
  }

  FA_DEVICE KeyTiles tiles(int part) const {
    const int first = first_tile + part * tiles_each;
    return {first, first + tiles_each};
  }
};

/// Eight neighbouring columns of a result under combination.
struct Combined {
  float value[8];
  float lse_log2;
};

/// Combines `count` parts. `lse_of(part)` is in base 2; `values_of(part)` points to eight columns.
template <class LseOf, class ValuesOf>
FA_DEVICE Combined combine_parts(int count, LseOf lse_of, ValuesOf values_of) {
  Combined result = {};
  float top = kMinusInfinity;
  for (int part = 0; part < count; part++) top = fmaxf(top, lse_of(part));
  if (top == kMinusInfinity) {
    result.lse_log2 = top;
    return result;
  }
  float total = 0;
  for (int part = 0; part < count; part++) {
    const float weight = exp2_fast(lse_of(part) - top);
    const float *const values = values_of(part);
    total += weight;
#pragma unroll
    for (int i = 0; i < 8; i++) result.value[i] += weight * values[i];
  }
#pragma unroll
  for (int i = 0; i < 8; i++) result.value[i] /= total;
  result.lse_log2 = top + log2_fast(total);
  return result;
}

/// Adds a head's sink, rounds, and writes columns 8 chunk .. 8 chunk + 7 of a query's output row.
template <class T>
FA_DEVICE void write_combined(const DecodeArgs &args, const Sequence &sequence, int query, int head,
                              int chunk, Combined result) {
  if (args.score.sinks != nullptr) {
    const float sink = args.score.sinks[head] * kLog2e;
    const float top = fmaxf(result.lse_log2, sink);
    if (top != kMinusInfinity) {
      const float own = exp2_fast(result.lse_log2 - top);
      const float total = own + exp2_fast(sink - top);
#pragma unroll
      for (int i = 0; i < 8; i++) result.value[i] *= own / total;
      result.lse_log2 = top + log2_fast(total);
    }
  }
  Words4 words;
#pragma unroll
  for (int i = 0; i < 4; i++) words.word[i] = pack<T>(result.value[2 * i], result.value[2 * i + 1]);
  const QueryArgs &q = args.query;
  T *const row = static_cast<T *>(q.out) +
                 row_offset(q.out_stride, q.cu_seqlens != nullptr, sequence, query, head);
  store_16_bytes(row + 8 * chunk, words);
  if (chunk == 0 && q.lse != nullptr) {
    *lse_at(q, sequence, query, head) = result.lse_log2 * kLn2;
  }
}

/// The row of a partial result.
FA_DEVICE int64_t partial_row(const DecodeArgs &args, int part, const Sequence &sequence, int query,
                              int head) {
  const int64_t sequence_row = static_cast<int64_t>(part) * args.batch + sequence.index;
  return (sequence_row * args.query.seqlen + query) * args.n_heads + head;
}

}  // namespace flash_attn
