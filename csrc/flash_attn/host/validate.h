// Whether parameters make sense. Nothing of the device is touched.
#pragma once

#include "flash_attn.h"

namespace flash_attn {

/// Checks all but pointers.
flash_attn_status validate_shape(uint32_t function, const flash_attn_params &params);

/// Checks pointers, for parameters whose shape is valid.
flash_attn_status validate_pointers(uint32_t function, const flash_attn_params &params);

/// Whether queries are packed: cu_seqlens_q says where sequences begin.
bool queries_are_packed(uint32_t function, const flash_attn_params &params);

/// Whether keys are packed: cu_seqlens_k says where sequences begin.
bool keys_are_packed(uint32_t function, const flash_attn_params &params);

/// Whether keys lie in pages. flash_attn_fwd knows none.
bool keys_are_paged(uint32_t function, const flash_attn_params &params);

}  // namespace flash_attn
