/* What is kept of the tokens before: keys and values in pages, recurrent state in slots. */
#ifndef FORGE_ABI_CACHES_H
#define FORGE_ABI_CACHES_H

#include "base.h"

/*
 * The keys and values of one layer, in `n_pages` pages of `page_tokens` tokens. `type` is F32, F16,
 * BF16 or Q8_0: blocks of 32 elements of a head (the last one of a head may be shorter), each with
 * a float16 scale. With `values_in_keys` a head has no values of its own: they are the first
 * v_head_dim elements of its keys, kept once. Pages are zero until written; their layout is the
 * backend's own; `page_bytes` receives what one takes.
 */
FORGE_API forge_status forge_kv_create(uint32_t device, uint32_t type, uint32_t n_pages,
                                       uint32_t page_tokens, uint32_t n_kv_heads,
                                       uint32_t k_head_dim, uint32_t v_head_dim,
                                       uint32_t values_in_keys, uint32_t *kv,
                                       uint64_t *page_bytes);

/*
 * A page's content to another page, or to and from memory of `page_bytes` bytes in the backend's
 * layout.
 */
FORGE_API forge_status forge_kv_copy_page(uint32_t kv, uint32_t from, uint32_t to);
FORGE_API forge_status forge_kv_read_page(uint32_t kv, uint32_t page, void *data, uint64_t bytes);
FORGE_API forge_status forge_kv_write_page(uint32_t kv, uint32_t page, const void *data,
                                           uint64_t bytes);

/*
 * What one operation of one layer remembers of the tokens before: `n_slots` matrices of floats
 * [rows, cols], one for each sequence that holds a slot. Their layout is the backend's own;
 * `slot_bytes` receives what one takes. FORGE_UNSUPPORTED where the device has no such operations.
 */
FORGE_API forge_status forge_state_create(uint32_t device, uint32_t n_slots, uint32_t rows,
                                          uint32_t cols, uint32_t *state, uint64_t *slot_bytes);

/*
 * A slot's content to another slot, or to and from memory of `slot_bytes` bytes in the backend's
 * layout.
 */
FORGE_API forge_status forge_state_copy_slot(uint32_t state, uint32_t from, uint32_t to);
FORGE_API forge_status forge_state_read_slot(uint32_t state, uint32_t slot, void *data,
                                             uint64_t bytes);
FORGE_API forge_status forge_state_write_slot(uint32_t state, uint32_t slot, const void *data,
                                              uint64_t bytes);

#endif
