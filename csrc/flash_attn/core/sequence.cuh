// One sequence of a batch: its lengths and the location of its rows.
#pragma once

#include "args.h"
#include "device/device.cuh"

namespace flash_attn {

FA_DEVICE int divide(int n, const Divisor &by) {
  const auto dividend = static_cast<uint32_t>(n);
  return static_cast<int>((multiply_high(dividend, by.magic) + dividend) >> by.shift);
}

// The lengths of a sequence and its first rows in packed tensors. Packed keys have no lengths of
// their own: either `cu_seqlens` or `seqlens` is given. Lengths are clamped to the
// bounds of the launch, so that a wrong table never leads outside the grid's work.
struct Sequence {
  int index;
  int q_begin;
  int n_queries;
  int k_begin;
  int n_keys;
  int table_row;  // of the block table

  Sequence() = default;
  FA_DEVICE Sequence(const QueryArgs &query, const KeyValueArgs &kv, int sequence)
      : index(sequence) {
    // All numbers are loaded at once, before the first is used.
    const bool q_counted = query.seqlens != nullptr, k_counted = kv.seqlens != nullptr;
    const int q_first = load_entry(query.cu_seqlens, index, 0);
    const int q_end = load_entry(q_counted ? nullptr : query.cu_seqlens, index + 1, query.seqlen);
    const int q_count = load_entry(query.seqlens, index, 0);
    const int k_first = load_entry(kv.cu_seqlens, index, 0);
    const int k_end = load_entry(kv.cu_seqlens, index + 1, kv.seqlen);
    const int k_count = load_entry(kv.seqlens, index, 0);
    table_row = load_entry(kv.block_rows, index, index);
    q_begin = q_first;
    n_queries = clamp(q_counted ? q_count : q_end - q_first, query.seqlen);
    k_begin = k_first;
    // A negative row leads nowhere. Without the comparison, ptxas would load the row after the
    // lengths have arrived.
    n_keys = table_row < 0 ? 0 : clamp(k_counted ? k_count : k_end - k_first, kv.seqlen);
  }

 private:
  FA_DEVICE static int clamp(int length, int longest) {
    return length < 0 ? 0 : length > longest ? longest : length;
  }
};

// The row of a packed or uniform tensor, in elements from its start.
FA_DEVICE int64_t row_offset(const Strides &stride, bool packed, const Sequence &sequence, int row,
                             int head) {
  const int64_t start = packed ? static_cast<int64_t>(sequence.q_begin) * stride.row
                               : static_cast<int64_t>(sequence.index) * stride.batch;
  return start + static_cast<int64_t>(row) * stride.row + static_cast<int64_t>(head) * stride.head;
}

// The address of a result's log-sum-exp.
FA_DEVICE float *lse_at(const QueryArgs &query, const Sequence &sequence, int row, int head) {
  const int64_t start = query.cu_seqlens != nullptr
                            ? sequence.q_begin
                            : static_cast<int64_t>(sequence.index) * query.lse_batch_stride;
  return query.lse + start + static_cast<int64_t>(head) * query.lse_head_stride + row;
}

// Locates the keys of one sequence and head as (page, row of the page). A sequence without pages
// is a single page.
class KeyRows {
 public:
  FA_DEVICE KeyRows(const KeyValueArgs &kv, const Sequence &sequence)
      : table_(kv.block_table == nullptr
                   ? nullptr
                   : kv.block_table + sequence.table_row * kv.block_table_stride),
        page_shift_(kv.page_shift),
        page_(kv.cu_seqlens == nullptr ? sequence.index : 0),
        begin_(sequence.k_begin) {}

  FA_DEVICE bool is_paged() const { return table_ != nullptr; }

  FA_DEVICE int page(int key) const {
    return table_ == nullptr ? page_ : table_[key >> page_shift_];
  }

  FA_DEVICE int row(int key) const {
    return table_ == nullptr ? begin_ + key : key & ((1 << page_shift_) - 1);
  }

 private:
  const int32_t *table_;
  int page_shift_;
  int page_;
  int begin_;
};

}  // namespace flash_attn
