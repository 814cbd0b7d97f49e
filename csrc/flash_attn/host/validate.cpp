#include "host/validate.h"

#include <cmath>

#include "args.h"
#include "host/split_plan.h"

namespace flash_attn {

namespace {

constexpr int32_t kMaxSplitCount = 128;
constexpr uint32_t kKnownFlags =
    FLASH_ATTN_CAUSAL | FLASH_ATTN_FORCE_SM80 | FLASH_ATTN_NO_SPLIT | FLASH_ATTN_EARLY_KEYS;
// Maximum size of a grid's second and third dimension.
constexpr int32_t kMaxGrid = 65535;
// Tensor maps hold byte strides below 2^40.
constexpr int64_t kMaxStride = int64_t{1} << 38;

bool is_head_dim(int32_t n) { return n == 64 || n == 96 || n == 128 || n == 192 || n == 256; }

bool is_length(int32_t n) { return n >= 0 && n <= max_seqlen; }

// Rows start at multiples of 16 bytes, and no two rows at the same address: results would
// overwrite each other, and tensor maps need distinct rows. A stride that is not used may have any
// value. `step`: elements of 16 bytes.
bool is_stride(int64_t stride, bool taken, int64_t step = 8) {
  return !taken || (stride > 0 && stride <= kMaxStride && stride % step == 0);
}

bool is_mask_stride(int64_t stride) { return stride >= 0 && stride <= kMaxStride; }

// Bytes of the elements of a mask.
uintptr_t mask_element_bytes(uint32_t type) {
  return type == FLASH_ATTN_MASK_BYTES ? 1 : type == FLASH_ATTN_MASK_AS_DTYPE ? 2 : 4;
}

bool is_aligned(const void *pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

flash_attn_status validate_pages(const flash_attn_params &p) {
  const bool power_of_two = p.page_size > 0 && (p.page_size & (p.page_size - 1)) == 0;
  if (!power_of_two || p.page_size < 8 || p.page_size > max_seqlen) return FLASH_ATTN_BAD_PAGE_SIZE;
  const int64_t pages = (static_cast<int64_t>(p.seqlen_k) + p.page_size - 1) / p.page_size;
  const bool wide_enough = p.batch <= 1 || p.block_table_stride >= pages;
  if (p.block_table_stride < 0 || !wide_enough) return FLASH_ATTN_BAD_STRIDE;
  return FLASH_ATTN_OK;
}

flash_attn_status validate_lengths(uint32_t function, const flash_attn_params &p) {
  if (p.batch < 0 || !is_length(p.seqlen_q) || !is_length(p.seqlen_k)) return FLASH_ATTN_BAD_LENGTH;
  if (queries_are_packed(function, p) && !is_length(p.total_q)) return FLASH_ATTN_BAD_LENGTH;
  if (keys_are_packed(function, p) && !is_length(p.total_k)) return FLASH_ATTN_BAD_LENGTH;
  if (function == FLASH_ATTN_DECODE && p.seqlen_q > kMaxSplitQueries) return FLASH_ATTN_BAD_LENGTH;
  if (p.batch > kMaxGrid || p.n_heads > kMaxGrid) return FLASH_ATTN_BAD_LENGTH;
  // 32 bits count the tiles, which have at least 64 rows, and the claims of blocks that find none.
  const int64_t rows = int64_t{p.seqlen_q} + 64;
  if (rows / 64 * p.n_heads * p.batch > 1 << 30) return FLASH_ATTN_BAD_LENGTH;
  return FLASH_ATTN_OK;
}

}  // namespace

bool queries_are_packed(uint32_t function, const flash_attn_params &params) {
  if (function == FLASH_ATTN_FWD) return false;
  return function == FLASH_ATTN_VARLEN_FWD || params.cu_seqlens_q != nullptr;
}

bool queries_are_empty(uint32_t function, const flash_attn_params &params) {
  return params.batch == 0 || params.seqlen_q == 0 ||
         (function == FLASH_ATTN_VARLEN_FWD && params.total_q == 0);
}

bool keys_are_empty(uint32_t function, const flash_attn_params &params) {
  return params.seqlen_k == 0 || (keys_are_packed(function, params) && params.total_k == 0);
}

bool keys_are_paged(uint32_t function, const flash_attn_params &params) {
  return function != FLASH_ATTN_FWD && params.block_table != nullptr;
}

bool keys_are_packed(uint32_t function, const flash_attn_params &params) {
  return function == FLASH_ATTN_VARLEN_FWD && !keys_are_paged(function, params);
}

flash_attn_status validate_shape(uint32_t function, const flash_attn_params &p) {
  if (p.version != FLASH_ATTN_VERSION || function > FLASH_ATTN_DECODE) {
    return FLASH_ATTN_BAD_VERSION;
  }
  if (p.dtype != FLASH_ATTN_F16 && p.dtype != FLASH_ATTN_BF16) return FLASH_ATTN_BAD_DTYPE;
  const bool q8_valid = function == FLASH_ATTN_DECODE && p.dtype == FLASH_ATTN_F16;
  const bool is_e4m3 = p.kv_dtype == FLASH_ATTN_KV_E4M3;
  if (p.kv_dtype > FLASH_ATTN_KV_E4M3 || (p.kv_dtype == FLASH_ATTN_KV_Q8_0 && !q8_valid) ||
      (is_e4m3 && function == FLASH_ATTN_DECODE)) {
    return FLASH_ATTN_BAD_KV_DTYPE;
  }
  if (p.mask_type > FLASH_ATTN_MASK_BITS || (p.mask_type != FLASH_ATTN_MASK_NONE && is_e4m3)) {
    return FLASH_ATTN_BAD_MASK;
  }
  if ((p.flags & ~kKnownFlags) != 0) return FLASH_ATTN_BAD_FLAGS;
  const bool early = (p.flags & FLASH_ATTN_EARLY_KEYS) != 0;
  if (early && function != FLASH_ATTN_DECODE) return FLASH_ATTN_BAD_FLAGS;
  if (is_e4m3 && (p.flags & FLASH_ATTN_FORCE_SM80) != 0) return FLASH_ATTN_BAD_FLAGS;
  if (!is_head_dim(p.head_dim) || (is_e4m3 && p.head_dim == 96)) return FLASH_ATTN_BAD_HEAD_DIM;
  if (p.n_heads < 1 || p.n_kv_heads < 1 || p.n_heads % p.n_kv_heads != 0) {
    return FLASH_ATTN_BAD_HEADS;
  }
  if (!(p.scale > 0) || !std::isfinite(p.scale)) return FLASH_ATTN_BAD_SCALE;
  if (!(p.softcap >= 0) || !std::isfinite(p.softcap)) return FLASH_ATTN_BAD_SCALE;
  if (p.n_splits < 0 || p.n_splits > kMaxSplitCount) return FLASH_ATTN_BAD_SPLITS;
  if (const auto status = validate_lengths(function, p)) return status;
  if (keys_are_paged(function, p)) {
    if (const auto status = validate_pages(p)) return status;
  }
  return FLASH_ATTN_OK;
}

flash_attn_status validate_strides(uint32_t function, const flash_attn_params &p) {
  const bool q_batches = !queries_are_packed(function, p) && p.batch > 1;
  const bool k_batches =
      keys_are_paged(function, p) || (!keys_are_packed(function, p) && p.batch > 1);
  const bool q_rows = queries_are_packed(function, p) || p.seqlen_q > 1;
  const bool k_rows =
      keys_are_paged(function, p) || keys_are_packed(function, p) || p.seqlen_k > 1;
  const int64_t q_step = p.kv_dtype == FLASH_ATTN_KV_E4M3 ? 16 : 8;
  const bool q_valid = is_stride(p.q_batch_stride, q_batches, q_step) &&
                       is_stride(p.q_row_stride, q_rows, q_step) &&
                       is_stride(p.q_head_stride, p.n_heads > 1, q_step) &&
                       is_stride(p.out_batch_stride, q_batches) &&
                       is_stride(p.out_row_stride, q_rows) &&
                       is_stride(p.out_head_stride, p.n_heads > 1);
  const int64_t step = p.kv_dtype == FLASH_ATTN_KV_AS_Q ? 8 : 16;
  const bool k_valid = is_stride(p.k_batch_stride, k_batches, step) &&
                       is_stride(p.k_row_stride, k_rows, step) &&
                       is_stride(p.k_head_stride, p.n_kv_heads > 1, step) &&
                       is_stride(p.v_batch_stride, k_batches, step) &&
                       is_stride(p.v_row_stride, k_rows, step) &&
                       is_stride(p.v_head_stride, p.n_kv_heads > 1, step);
  const bool valid = (q_valid || queries_are_empty(function, p)) &&
                     (k_valid || keys_are_empty(function, p));
  if (!valid) return FLASH_ATTN_BAD_STRIDE;
  const bool mask_valid = p.mask_type == FLASH_ATTN_MASK_NONE ||
                          (is_mask_stride(p.mask_batch_stride) &&
                           is_mask_stride(p.mask_row_stride) &&
                           is_mask_stride(p.mask_head_stride) && is_mask_stride(p.mask_key_stride));
  return mask_valid ? FLASH_ATTN_OK : FLASH_ATTN_BAD_MASK;
}

flash_attn_status validate_pointers(uint32_t function, const flash_attn_params &p) {
  const bool has_queries = !queries_are_empty(function, p);
  if (has_queries && (p.q == nullptr || p.out == nullptr)) return FLASH_ATTN_NULL_POINTER;
  if (has_queries && !keys_are_empty(function, p)) {
    if (p.k == nullptr || p.v == nullptr) return FLASH_ATTN_NULL_POINTER;
    const bool has_scales = p.k_scales != nullptr && p.v_scales != nullptr;
    if (p.kv_dtype == FLASH_ATTN_KV_Q8_0 && !has_scales) return FLASH_ATTN_NULL_POINTER;
    if (p.mask_type != FLASH_ATTN_MASK_NONE && p.mask == nullptr) return FLASH_ATTN_NULL_POINTER;
  }
  if (queries_are_packed(function, p) && p.cu_seqlens_q == nullptr) return FLASH_ATTN_NULL_POINTER;
  if (keys_are_packed(function, p) && p.cu_seqlens_k == nullptr) return FLASH_ATTN_NULL_POINTER;
  const bool rows_aligned = is_aligned(p.q, 16) && is_aligned(p.k, 16) && is_aligned(p.v, 16) &&
                            is_aligned(p.out, 16) && is_aligned(p.workspace, 16) &&
                            is_aligned(p.k_scales, 16) && is_aligned(p.v_scales, 16);
  const bool words_aligned = is_aligned(p.lse, 4) && is_aligned(p.sinks, 4) &&
                             is_aligned(p.q_descale, 4) && is_aligned(p.k_descale, 4) &&
                             is_aligned(p.v_descale, 4) && is_aligned(p.mask_pitch, 4) &&
                             is_aligned(p.mask, mask_element_bytes(p.mask_type)) &&
                             is_aligned(p.block_table, 4) && is_aligned(p.block_rows, 4) &&
                             is_aligned(p.seqlens_k, 4) && is_aligned(p.cu_seqlens_q, 4) &&
                             is_aligned(p.cu_seqlens_k, 4) && is_aligned(p.seqlens_q, 4);
  return rows_aligned && words_aligned ? FLASH_ATTN_OK : FLASH_ATTN_MISALIGNED;
}

}  // namespace flash_attn
