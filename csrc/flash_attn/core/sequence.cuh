// One sequence of a batch: its lengths and the location of its rows.
#pragma once

#include "args.h"
#include "device/device.cuh"

namespace flash_attn {

/// The lengths of a sequence and its first rows in packed tensors. Lengths are clamped to the
/// bounds of the launch, so that a wrong table never leads outside the grid's work.
struct Sequence {
  int index;
  int q_begin;
  int n_queries;
  int k_begin;
  int n_keys;

  Sequence() = default;
  FA_DEVICE Sequence(const QueryArgs &query, const KeyValueArgs &kv, int sequence)
      : index(sequence), q_begin(0), n_queries(query.seqlen), k_begin(0), n_keys(kv.seqlen) {
    if (query.cu_seqlens != nullptr) {
      q_begin = query.cu_seqlens[index];
      const int packed =
          query.seqlens != nullptr ? query.seqlens[index] : query.cu_seqlens[index + 1] - q_begin;
      n_queries = clamp(packed, query.seqlen);
    }
    if (kv.cu_seqlens != nullptr) {
      k_begin = kv.cu_seqlens[index];
      n_keys = clamp(kv.cu_seqlens[index + 1] - k_begin, kv.seqlen);
    } else if (kv.seqlens != nullptr) {
      n_keys = clamp(kv.seqlens[index], kv.seqlen);
    }
  }

 private:
  FA_DEVICE static int clamp(int length, int longest) {
    return length < 0 ? 0 : length > longest ? longest : length;
  }
};

/// The row of a packed or uniform tensor, in elements from its start.
FA_DEVICE int64_t row_offset(const Strides &stride, bool packed, const Sequence &sequence, int row,
                             int head) {
  const int64_t start = packed ? static_cast<int64_t>(sequence.q_begin) * stride.row
                               : static_cast<int64_t>(sequence.index) * stride.batch;
  return start + static_cast<int64_t>(row) * stride.row + static_cast<int64_t>(head) * stride.head;
}

/// The address of a result's log-sum-exp.
FA_DEVICE float *lse_at(const QueryArgs &query, const Sequence &sequence, int row, int head) {
  const int64_t start = query.cu_seqlens != nullptr
                            ? sequence.q_begin
                            : static_cast<int64_t>(sequence.index) * query.lse_batch_stride;
  return query.lse + start + static_cast<int64_t>(head) * query.lse_head_stride + row;
}

/// Locates the keys of one sequence and head as (page, row of the page). A sequence without pages
/// is a single page.
class KeyRows {
 public:
  FA_DEVICE KeyRows(const KeyValueArgs &kv, const Sequence &sequence)
      : kv_(kv), sequence_(sequence.index), begin_(sequence.k_begin) {}

  FA_DEVICE int page(int key) const {
    if (kv_.block_table == nullptr) return kv_.cu_seqlens == nullptr ? sequence_ : 0;
    const int row = kv_.block_rows == nullptr ? sequence_ : kv_.block_rows[sequence_];
    return kv_.block_table[row * kv_.block_table_stride + (key >> kv_.page_shift)];
  }

  FA_DEVICE int row(int key) const {
    return kv_.block_table == nullptr ? begin_ + key : key & ((1 << kv_.page_shift) - 1);
  }

  FA_DEVICE int64_t offset(const Strides &stride, int key) const {
    return static_cast<int64_t>(page(key)) * stride.batch +
           static_cast<int64_t>(row(key)) * stride.row;
  }

 private:
  const KeyValueArgs &kv_;
  int sequence_;
  int begin_;
};

}  // namespace flash_attn
