/* Caches of earlier tokens: keys and values in pages, recurrent state in slots. */
#ifndef FORGE_ABI_CACHES_H
#define FORGE_ABI_CACHES_H

#include "base.h"

/*
 * The keys and values of one layer, in `n_pages` pages of `page_tokens` tokens. `type` is F32, F16,
 * BF16, or Q8_0 or Q4_0: blocks of 32 elements of a head (the last one of a head may be shorter),
 * each with a float16 scale. With `values_in_keys`, the values of a head are the first
 * v_head_dim elements of its keys, stored once. Pages are zero until written. The backend chooses
 * their layout; `page_bytes` receives the size of one.
 */
FORGE_API forge_status forge_kv_create(uint32_t device, uint32_t type, uint32_t n_pages,
                                       uint32_t page_tokens, uint32_t n_kv_heads,
                                       uint32_t k_head_dim, uint32_t v_head_dim,
                                       uint32_t values_in_keys, uint32_t *kv,
                                       uint64_t *page_bytes);

/*
 * Copy a page to another page, or to and from memory of `page_bytes` bytes in the layout of the
 * backend.
 */
FORGE_API forge_status forge_kv_copy_page(uint32_t kv, uint32_t from, uint32_t to);
FORGE_API forge_status forge_kv_read_page(uint32_t kv, uint32_t page, void *data, uint64_t bytes);
FORGE_API forge_status forge_kv_write_page(uint32_t kv, uint32_t page, const void *data,
                                           uint64_t bytes);

/*
 * The recurrent state of one operation of one layer: `n_slots` matrices of floats [rows, cols], one
 * for each sequence with a slot. The backend chooses their layout; `slot_bytes` receives the size
 * of one. FORGE_UNSUPPORTED if the device has no operations with recurrent state.
 */
FORGE_API forge_status forge_state_create(uint32_t device, uint32_t n_slots, uint32_t rows,
                                          uint32_t cols, uint32_t *state, uint64_t *slot_bytes);

/*
 * Copy a slot to another slot, or to and from memory of `slot_bytes` bytes in the layout of the
 * backend.
 */
FORGE_API forge_status forge_state_copy_slot(uint32_t state, uint32_t from, uint32_t to);
FORGE_API forge_status forge_state_read_slot(uint32_t state, uint32_t slot, void *data,
                                             uint64_t bytes);
FORGE_API forge_status forge_state_write_slot(uint32_t state, uint32_t slot, const void *data,
                                              uint64_t bytes);

#endif
