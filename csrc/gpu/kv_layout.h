#pragma once

#include <string>

#include "../common/backend.h"

namespace forge {

// The pages of one layer in device memory: for each KV head of a page the keys
// [page_tokens, k_head_dim], their scales (Q8_0), the values [page_tokens, v_head_dim], their
// scales; each part padded to 16 bytes. Where values are in the keys, these have no parts of their
// own.
struct KvLayout {
  uint64_t page_bytes;
  uint32_t head_bytes;
  uint32_t v_offset;  // from here on: byte offsets in a head
  uint32_t k_scales;
  uint32_t v_scales;
};

// Throws FORGE_UNSUPPORTED, naming the device, for a type of element that GPUs do not store.
KvLayout kv_layout(const KvShape& shape, const std::string& device);

}  // namespace forge
