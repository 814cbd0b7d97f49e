#include "host/arguments.h"

#include <algorithm>
#include <bit>

#include "core/constants.h"
#include "host/validate.h"

namespace flash_attn {

Divisor divisor(int64_t value) {
  const auto by = static_cast<uint64_t>(value);
  const int shift = std::bit_width(by - 1);
  const uint64_t magic = ((((uint64_t{1} << shift) - by) << 32) / by) + 1;
  return {static_cast<int32_t>(value), static_cast<uint32_t>(magic), shift};
}

namespace {

// Strides that count 16 bits, from strides that count elements, or bytes.
Strides strides(bool count_bytes, int64_t batch, int64_t row, int64_t head) {
  const int64_t step = count_bytes ? 2 : 1;
  return {batch / step, row / step, head / step};
}

}  // namespace

QueryArgs query_args(uint32_t function, const flash_attn_params &p) {
  QueryArgs args = {};
  args.q = p.q;
  args.out = p.out;
  args.lse = p.lse;
  const bool count_bytes = p.kv_dtype == FLASH_ATTN_KV_E4M3;
  args.q_stride = strides(count_bytes, p.q_batch_stride, p.q_row_stride, p.q_head_stride);
  args.out_stride = {p.out_batch_stride, p.out_row_stride, p.out_head_stride};
  args.lse_batch_stride = p.lse_batch_stride;
  args.lse_head_stride = p.lse_head_stride;
  args.cu_seqlens = queries_are_packed(function, p) ? p.cu_seqlens_q : nullptr;
  args.seqlens = args.cu_seqlens != nullptr ? p.seqlens_q : nullptr;
  args.seqlen = p.seqlen_q;
  return args;
}

KeyValueArgs key_value_args(uint32_t function, const flash_attn_params &p) {
  KeyValueArgs args = {};
  args.k = p.k;
  args.v = p.v;
  args.k_scales = p.k_scales;
  args.v_scales = p.v_scales;
  const bool count_bytes = p.kv_dtype != FLASH_ATTN_KV_AS_Q;
  args.k_stride = strides(count_bytes, p.k_batch_stride, p.k_row_stride, p.k_head_stride);
  args.v_stride = strides(count_bytes, p.v_batch_stride, p.v_row_stride, p.v_head_stride);
  if (keys_are_paged(function, p)) {
    args.block_table = p.block_table;
    args.block_table_stride = p.block_table_stride;
    args.block_rows = p.block_rows;
    args.page_shift = std::countr_zero(static_cast<uint32_t>(p.page_size));
  }
  args.cu_seqlens = keys_are_packed(function, p) ? p.cu_seqlens_k : nullptr;
  args.seqlens = function == FLASH_ATTN_FWD || args.cu_seqlens != nullptr ? nullptr : p.seqlens_k;
  args.seqlen = keys_are_empty(function, p) ? 0 : p.seqlen_k;
  return args;
}

E4m3Args e4m3_args(const flash_attn_params &p) {
  E4m3Args args = {};
  args.q_descale = p.q_descale;
  args.k_descale = p.k_descale;
  args.v_descale = p.v_descale;
  args.descale_batch_stride = p.descale_batch_stride;
  args.descale_head_stride = p.descale_head_stride;
  args.writes_f16 = p.dtype == FLASH_ATTN_F16 ? 1 : 0;
  return args;
}

MaskArgs mask_args(const flash_attn_params &p) {
  MaskArgs args = {};
  args.data = p.mask;
  args.pitch = p.mask_pitch;
  args.batch_stride = p.mask_batch_stride;
  args.row_stride = p.mask_row_stride;
  args.head_stride = p.mask_head_stride;
  args.key_stride = p.mask_key_stride;
  args.type = static_cast<int32_t>(p.mask_type);
  // Capped scores are in base 2, others are not scaled yet.
  args.factor = p.softcap > 0 ? kLog2e : 1 / p.scale;
  return args;
}

ScoreArgs score_args(const flash_attn_params &p) {
  const auto window = [](int32_t keys) {
    return keys < 0 ? unlimited_window : std::min(keys, unlimited_window);
  };
  ScoreArgs args = {};
  args.scale_log2 = p.scale * kLog2e;
  if (p.softcap > 0) {
    args.softcap_scale = 2 * kLog2e * p.scale / p.softcap;
    args.softcap_log2 = p.softcap * kLog2e;
    args.softcap_fall = -2 * args.softcap_log2;
  }
  args.sinks = p.sinks;
  args.window_left = window(p.window_left);
  args.window_right = (p.flags & FLASH_ATTN_CAUSAL) != 0 ? 0 : window(p.window_right);
  return args;
}

}  // namespace flash_attn
