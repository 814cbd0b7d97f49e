// Arguments of kernels. Lengths and tables that the host does not know are read on the device.
#pragma once

#include <cstdint>
#include <type_traits>

namespace flash_attn {

// Strides of a packed or uniform tensor, in elements.
struct Strides {
  int64_t batch;
  int64_t row;
  int64_t head;
};

// Location of the keys and values of a sequence.
struct KeyValueArgs {
  const void *k;
  const void *v;
  const void *k_scales;        // of Q8_0, whose strides count pairs of bytes
  const void *v_scales;
  Strides k_stride;
  Strides v_stride;
  const int32_t *block_table;  // null: not paged
  int64_t block_table_stride;
  const int32_t *block_rows;   // null: sequence b uses row b of the table
  int32_t page_shift;          // log2 of a page's rows
  const int32_t *cu_seqlens;   // null: not packed
  const int32_t *seqlens;      // null: every sequence has `seqlen`
  int32_t seqlen;
};

// Location of the queries and results of a sequence.
struct QueryArgs {
  const void *q;
  void *out;
  float *lse;                 // null: not written
  Strides q_stride;
  Strides out_stride;
  int64_t lse_batch_stride;
  int64_t lse_head_stride;
  const int32_t *cu_seqlens;  // null: not packed
  const int32_t *seqlens;     // of packed sequences; null: up to the first row of the next one
  int32_t seqlen;
};

// Parameters that turn scores into weights.
struct ScoreArgs {
  // Exponentials are powers of two: 2^(score * scale_log2); for capped scores see softcap_log2.
  float scale_log2;
  float softcap_scale;   // 2 log2(e) scale / softcap; 0: no cap
  float softcap_log2;    // softcap * log2(e)
  float softcap_fall;    // -2 softcap_log2
  const float *sinks;    // null: none
  int32_t window_left;   // unlimited_window: no limit
  int32_t window_right;
};

// Larger than any sequence; small enough that sums of positions and windows fit in 32 bits.
inline constexpr int32_t unlimited_window = 1 << 29;
// The longest sequence.
inline constexpr int32_t max_seqlen = 1 << 29;

// Divides numbers below 2^31 by a number known to the host, without a division (Granlund and
// Montgomery, 1994): n / value = (high word of n * magic + n) >> shift.
struct Divisor {
  int32_t value;
  uint32_t magic;
  int32_t shift;
};

// The order of all tiles of query rows; see core/schedule.cuh.
struct TileSchedule {
  int32_t tiles;          // of all heads of all sequences
  int32_t row_tiles;      // of a head of the longest sequence
  int32_t last_section;
  Divisor n_heads;
  Divisor group;          // query heads per key head
  Divisor section_heads;  // heads whose tiles are neighbours in the schedule
  Divisor section_tiles;
  Divisor last_heads;     // heads of the last section
};

// Parameters of inputs of E4M3.
struct E4m3Args {
  const float *q_descale;  // of each sequence and key head; null: 1
  const float *k_descale;
  const float *v_descale;
  int64_t descale_batch_stride;
  int64_t descale_head_stride;
  int32_t writes_f16;      // 1: the output is F16; 0: BF16
};

// Parameters of the forward kernels.
struct ForwardArgs {
  QueryArgs query;
  KeyValueArgs kv;
  ScoreArgs score;
  TileSchedule schedule;
};

// A mask given by the caller; see flash_attn.h.
struct MaskArgs {
  const void *data;
  const int32_t *pitch;  // multiplies all strides but key_stride; null: 1
  int64_t batch_stride;  // in elements like the others; of bits, in words
  int64_t row_stride;
  int64_t head_stride;
  int32_t key_stride;
  int32_t type;          // FLASH_ATTN_MASK_...
  float factor;          // turns numbers of the mask into the unit of scores before the softmax
};

// Parameters of the decode kernel and of the combine kernel.
struct DecodeArgs {
  QueryArgs query;
  KeyValueArgs kv;
  ScoreArgs score;
  int32_t head_dim;
  int32_t n_splits;
  int32_t batch;
  int32_t early_keys;    // 1: keys are read before the previous kernel ends
  Divisor n_heads;
  Divisor n_kv_heads;
  Divisor group;
  // Partial results of rows (sequence * max_q + token) * n_heads + head.
  float *partial_out;    // [rows][head_dim / 32][n_splits][32]
  float *partial_lse;    // [rows][n_splits, rounded up to four], base 2
};

// Arguments with a mask, or without one.
template <class Args>
struct Masked : Args {
  MaskArgs mask;
};
template <class Args, bool kMasked>
using Maskable = std::conditional_t<kMasked, Masked<Args>, Args>;

}  // namespace flash_attn
