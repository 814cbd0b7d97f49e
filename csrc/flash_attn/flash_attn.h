/*
 * Attention forward on NVIDIA GPUs: out = softmax(scale * Q K^T) V, exact, without storing the
 * scores in memory.
 *
 * Sources: Dao, "FlashAttention-2" (2023); Dao, Haziza, Massa, Sizov, "Flash-Decoding" (2023);
 * Shah, Bikshandi, Zhang, Thakkar, Ramani, Dao, "FlashAttention-3" (2024).
 *
 * - Q, K, V and the output are F16 or BF16, all of one type; sums are F32. flash_attn_decode also
 *   takes keys and values of Q8_0, the other functions Q, K and V of E4M3 on SM90.
 * - All pointers inside the parameters are device pointers. Strides count elements; the elements
 *   of one head's row are adjacent. Rows must start at multiples of 16 bytes. The stride of a
 *   dimension with more than one element must be positive; other strides are ignored.
 * - Functions launch work on `stream` of the calling thread's current device and return without
 *   waiting for it. They never exit, print or allocate. They may be captured in a CUDA graph: run
 *   the same call once before the first capture, so that its code is loaded.
 * - A query sees the keys at positions [p - window_left, p + window_right]. Its position p is
 *   aligned so that the last query is at the last key (mask aligned at the bottom right). A mask of
 *   the caller narrows that. A row that sees no key is zero, with a log-sum-exp of -infinity, or of
 *   the sink if there are sinks.
 */
#ifndef FLASH_ATTN_H
#define FLASH_ATTN_H

#include <stdint.h>

#ifdef __cplusplus
#define FLASH_ATTN_API extern "C" __attribute__((visibility("default")))
#else
#define FLASH_ATTN_API
#endif

#define FLASH_ATTN_VERSION 6u

typedef int32_t flash_attn_status;
enum {
  FLASH_ATTN_OK = 0,
  FLASH_ATTN_BAD_VERSION = 1,
  FLASH_ATTN_BAD_DTYPE = 2,
  FLASH_ATTN_BAD_HEAD_DIM = 3,
  FLASH_ATTN_BAD_HEADS = 4,
  FLASH_ATTN_BAD_LENGTH = 5,
  FLASH_ATTN_BAD_STRIDE = 6,
  FLASH_ATTN_MISALIGNED = 7,
  FLASH_ATTN_NULL_POINTER = 8,
  FLASH_ATTN_BAD_SCALE = 9,
  FLASH_ATTN_BAD_PAGE_SIZE = 10,
  FLASH_ATTN_BAD_SPLITS = 11,
  FLASH_ATTN_BAD_FLAGS = 12,
  FLASH_ATTN_WORKSPACE_TOO_SMALL = 13,
  FLASH_ATTN_NO_DEVICE = 14,
  FLASH_ATTN_UNSUPPORTED_DEVICE = 15,
  FLASH_ATTN_LAUNCH_FAILED = 16,
  FLASH_ATTN_TENSOR_MAP_FAILED = 17,
  FLASH_ATTN_BAD_KV_DTYPE = 18,
  FLASH_ATTN_BAD_MASK = 19
};

enum { FLASH_ATTN_F16 = 0, FLASH_ATTN_BF16 = 1 };

/*
 * Types of keys and values. Q8_0 is for flash_attn_decode with F16 queries: signed bytes, and an
 * F16 factor for each 32 numbers of a row. Strides of k and v then count bytes and are multiples of
 * 16. The factors of a head are adjacent, row after row, from k_scales and v_scales on, both
 * 16-byte aligned; heads, and sequences or pages, are as far apart as those of k and v.
 *
 * E4M3 (OCP FP8) is the type of q, too, and `dtype` that of the output. Of flash_attn_fwd and
 * flash_attn_varlen_fwd on SM90, for head_dim 64, 128, 192 and 256. Strides of q, k and v then
 * count bytes and are multiples of 16. Weights of the softmax are rounded to E4M3 as well: an
 * element is off by at most 2^-4 of the weighted mean of its column's magnitudes, and 2^-16 of the
 * sum of these for each key.
 */
enum { FLASH_ATTN_KV_AS_Q = 0, FLASH_ATTN_KV_Q8_0 = 1, FLASH_ATTN_KV_E4M3 = 2 };

/*
 * Masks: numbers that are added to scores after scale and softcap, F32 or of `dtype`, or keys that
 * are shown: bytes other than 0, or bits, of which bit j % 32 of a row's word j / 32 shows key j.
 * Numbers below -10^30, such as -infinity, hide a key; others are at most 10^30. Causality and
 * windows hide keys as well. A mask has entries for every key of a sequence; those after its last
 * are not read. Not with E4M3. The kernels of SM80 take them, also on SM90.
 */
enum {
  FLASH_ATTN_MASK_NONE = 0,
  FLASH_ATTN_MASK_F32 = 1,
  FLASH_ATTN_MASK_AS_DTYPE = 2,
  FLASH_ATTN_MASK_BYTES = 3,
  FLASH_ATTN_MASK_BITS = 4
};

enum {
  FLASH_ATTN_CAUSAL = 1u << 0,     /* window_right is 0 at most */
  FLASH_ATTN_FORCE_SM80 = 1u << 1, /* the kernels of SM80, whatever the device: for tests */
  FLASH_ATTN_NO_SPLIT = 1u << 2,   /* flash_attn_fwd never takes the split path of few queries */
  /*
   * For flash_attn_decode. Keys, values, their factors, tables and lengths are final before the
   * previous kernel on the stream ends: it does not write them, and it lets this call start early,
   * if at all, only after its own wait for the kernels before it (griddepcontrol). The first keys
   * are then read while it ends. It may write q.
   */
  FLASH_ATTN_EARLY_KEYS = 1u << 3
};

/*
 * Parameters of all functions. A function ignores fields that its description does not mention.
 * Zero the struct, then set `version`.
 */
typedef struct flash_attn_params {
  uint32_t version; /* FLASH_ATTN_VERSION */
  uint32_t dtype;
  uint32_t flags;
  int32_t head_dim;   /* 64, 96, 128, 192 or 256, for both keys and values */
  int32_t n_heads;    /* of queries: a multiple of n_kv_heads */
  int32_t n_kv_heads; /* query head h reads key head h / (n_heads / n_kv_heads) */
  int32_t batch;      /* sequences */
  int32_t seqlen_q;   /* of every sequence, or the longest's: see the functions */
  int32_t seqlen_k;
  int32_t window_left;  /* keys before the query's own that it sees; negative: all */
  int32_t window_right; /* keys after it; negative: all. FLASH_ATTN_CAUSAL makes it 0 */
  float scale;          /* of the scores, > 0 */
  float softcap;        /* > 0: scores become softcap * tanh(score / softcap) */

  /* Pages of keys and values; block_table 0: no pages. */
  int32_t page_size;          /* rows per page, a power of two, at least 8 */
  int64_t block_table_stride; /* entries between the rows of two sequences */
  const int32_t *block_table; /* [...][...] page numbers */
  const int32_t *block_rows;  /* [batch] each sequence's row of the table; 0: its own number */
  const int32_t *seqlens_k;   /* [batch]; 0: every sequence has seqlen_k keys */

  /*
   * Packed sequences: sequence b is rows [cu_seqlens[b], cu_seqlens[b + 1]). With seqlens_q, its
   * queries are the seqlens_q[b] rows from cu_seqlens_q[b] on; other rows are not accessed.
   */
  const int32_t *cu_seqlens_q; /* [batch + 1]; [batch] with seqlens_q */
  const int32_t *cu_seqlens_k; /* [batch + 1] */
  const int32_t *seqlens_q;    /* [batch]; may be 0 */
  int32_t total_q;             /* rows of all sequences: cu_seqlens_q[batch], or the tensor's */
  int32_t total_k;

  const void *q;
  const void *k;
  const void *v;
  void *out;
  const void *k_scales; /* of Q8_0 */
  const void *v_scales;
  float *lse;         /* 0, or the natural logarithm of each row's sum of exponentials */
  const float *sinks; /* 0, or [n_heads] logits without a value, added to the softmax */

  /*
   * Factors of numbers of E4M3: of sequence b and key head h (q: the key head that it reads) at
   * b descale_batch_stride + h descale_head_stride; both strides may be 0. Null: 1.
   */
  const float *q_descale;
  const float *k_descale;
  const float *v_descale;
  int64_t descale_batch_stride, descale_head_stride;

  /*
   * The entry of key j, query i and head h of sequence b is at mask +
   * (b mask_batch_stride + i mask_row_stride + h mask_head_stride) pitch + j mask_key_stride.
   * Packed queries are rows of the mask as they are of q, and mask_batch_stride is ignored. Strides
   * count elements, or words of 32 bits, which are adjacent in a row. A stride is 0 for a dimension
   * that the mask lacks. The pitch is *mask_pitch, or 1 if that pointer is 0; it is read on the
   * device, so that a captured call serves masks of any width.
   */
  const void *mask; /* aligned to its elements */
  const int32_t *mask_pitch;
  int64_t mask_batch_stride, mask_row_stride, mask_head_stride;
  int32_t mask_key_stride; /* ignored for bits */
  uint32_t mask_type;      /* FLASH_ATTN_MASK_... */

  /* With a block table, the batch strides of k and v are strides between pages. */
  int64_t q_batch_stride, q_row_stride, q_head_stride;
  int64_t k_batch_stride, k_row_stride, k_head_stride;
  int64_t v_batch_stride, v_row_stride, v_head_stride;
  int64_t out_batch_stride, out_row_stride, out_head_stride;
  int64_t lse_batch_stride, lse_head_stride; /* rows are adjacent */

  int32_t n_splits; /* maximum number of parts of the keys, 1 to 128; 0: automatic */
  uint32_t kv_dtype; /* FLASH_ATTN_KV_... */
  void *workspace; /* 16-byte aligned; see flash_attn_workspace_size */
  uint64_t workspace_size;
  void *stream; /* a cudaStream_t (CUstream) */
} flash_attn_params;

enum { FLASH_ATTN_FWD = 0, FLASH_ATTN_VARLEN_FWD = 1, FLASH_ATTN_DECODE = 2 };

/* FLASH_ATTN_VERSION of the library. */
FLASH_ATTN_API uint32_t flash_attn_version(void);

/* One line of text for a status; never 0. */
FLASH_ATTN_API const char *flash_attn_status_text(flash_attn_status status);

/* FLASH_ATTN_OK if the current device can run these functions, otherwise the reason. */
FLASH_ATTN_API flash_attn_status flash_attn_device_status(void);

/*
 * Bytes of workspace that `function` (FLASH_ATTN_FWD, ...) needs for these parameters. Pointers and
 * strides of tensors are ignored. A smaller batch, seqlen_q, total_q or seqlen_k never needs more.
 * The contents need not be kept between calls. Calls that may run at the same time must not share a
 * workspace.
 */
FLASH_ATTN_API flash_attn_status flash_attn_workspace_size(uint32_t function,
                                                           const flash_attn_params *params,
                                                           uint64_t *bytes);

/*
 * Sequences of one length: row i of head h of sequence b of q is at
 * q + b q_batch_stride + i q_row_stride + h q_head_stride, and likewise for k, v and out;
 * lse + b lse_batch_stride + h lse_head_stride + i.
 *
 * With up to 16 queries per sequence, the keys are split as in flash_attn_decode, in the workspace.
 */
FLASH_ATTN_API flash_attn_status flash_attn_fwd(const flash_attn_params *params);

/*
 * Packed sequences of any lengths, including zero; seqlen_q and seqlen_k are the maximum lengths.
 * Keys are packed according to cu_seqlens_k, or lie in pages if there is a block table, seqlens_k
 * of them per sequence. Batch strides of packed tensors are ignored; lse + h lse_head_stride +
 * packed row.
 */
FLASH_ATTN_API flash_attn_status flash_attn_varlen_fwd(const flash_attn_params *params);

/*
 * 1 to 16 queries per sequence against many keys. Each key head is read once for all its query
 * heads; the keys are divided among thread blocks and the parts combined. Queries are packed if
 * cu_seqlens_q is given (at most seqlen_q per sequence), otherwise uniform. Keys lie in pages if
 * there is a block table, otherwise as in flash_attn_fwd. There are at most seqlen_k keys per
 * sequence: the bound shapes the launch, so that a captured launch serves every length up to it.
 */
FLASH_ATTN_API flash_attn_status flash_attn_decode(const flash_attn_params *params);

#endif
