// The end of both forward kernels: writes normalized rows and their log-sum-exp.
#pragma once

#include "core/output.cuh"

namespace flash_attn {

template <class T, int kRowTiles, int kColumnTiles, class Softmax, class QueryOf>
FA_DEVICE void write_forward_result(const ForwardArgs &args, const Sequence &sequence, int head,
                                    Accumulators<kRowTiles, kColumnTiles> &out,
                                    const Softmax &softmax, QueryOf query_of) {
  PerRow<kRowTiles> factor, lse_log2;
  const float sink =
      args.score.sinks == nullptr ? kMinusInfinity : args.score.sinks[head] * kLog2e;
  softmax.finish(factor, lse_log2, [&](int) { return sink; });
  scale_rows<kRowTiles, kColumnTiles>(out, factor);

  const QueryArgs &query = args.query;
  T *const rows = static_cast<T *>(query.out) + row_offset(query.out_stride,
                                                           query.cu_seqlens != nullptr, sequence, 0,
                                                           head);
  store_rows<T, kRowTiles, kColumnTiles>(out, [&](int row) -> T * {
    const int i = query_of(row);
    return i < sequence.n_queries ? rows + i * query.out_stride.row : nullptr;
  });
  if (query.lse == nullptr) return;
  float *const lse = lse_at(query, sequence, 0, head);
  store_lse<kRowTiles>(lse_log2, [&](int row) {
    const int i = query_of(row);
    return i < sequence.n_queries ? lse + i : nullptr;
  });
}

}  // namespace flash_attn
