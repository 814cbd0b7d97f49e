#pragma once

// Arguments of kernels. The same structs are declared in kernels/cuda.

#include <cstdint>

#include "../gpu/input_layout.h"
#include "driver_api.h"

namespace forge::cuda {

// The pages of one layer, laid out as KvLayout (device_caches.h).
struct KvPages {
  DevicePointer data;
  uint64_t page_bytes;
  uint32_t head_bytes;
  uint32_t v_offset;  // this and the following: byte offsets in a head
  uint32_t k_scales;
  uint32_t v_scales;
  uint32_t page_tokens;
  uint32_t n_kv_heads;
  uint32_t k_dim;
  uint32_t v_dim;
  uint32_t values_in_keys;
};
static_assert(sizeof(KvPages) == 56);

// out = residual + alpha * activation(product + bias); bias and residual may be 0.
struct Epilogue {
  DevicePointer bias;
  DevicePointer residual;
  float alpha;
  uint32_t activation;
};
static_assert(sizeof(Epilogue) == 24);

using RowSet = forge::RowSet<DevicePointer>;
static_assert(sizeof(RowSet) == 16);

struct AttentionArgs {
  DevicePointer sinks;
  DevicePointer mask;  // of masked kernels, like mask_...
  DevicePointer mask_stride;
  float scale;
  float softcap;
  uint32_t n_heads;
  uint32_t window;
  uint32_t causal;
  uint32_t max_queries;  // per tile of decode attention
  uint32_t mask_heads;
  uint32_t mask_is_bits;
};
static_assert(sizeof(AttentionArgs) == 56);

}  // namespace forge::cuda
