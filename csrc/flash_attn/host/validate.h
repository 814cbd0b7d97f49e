// Validation of parameters. Does not access the device.
#pragma once

#include "flash_attn.h"

namespace flash_attn {

// Checks everything except strides of rows and pointers, which the workspace does not depend on.
flash_attn_status validate_shape(uint32_t function, const flash_attn_params &params);

// Checks the strides of tensors.
flash_attn_status validate_strides(uint32_t function, const flash_attn_params &params);

// Checks pointers, for parameters whose shape is valid.
flash_attn_status validate_pointers(uint32_t function, const flash_attn_params &params);

// True if there are no queries, so that a call has nothing to do.
bool queries_are_empty(uint32_t function, const flash_attn_params &params);

// True if no sequence has keys; their pointers and strides are then ignored.
bool keys_are_empty(uint32_t function, const flash_attn_params &params);

// True if queries are packed: cu_seqlens_q holds the starts of sequences.
bool queries_are_packed(uint32_t function, const flash_attn_params &params);

// True if keys are packed: cu_seqlens_k holds the starts of sequences.
bool keys_are_packed(uint32_t function, const flash_attn_params &params);

// True if keys lie in pages; always false for flash_attn_fwd.
bool keys_are_paged(uint32_t function, const flash_attn_params &params);

}  // namespace flash_attn
