// Division of the decode kernel's work.
#pragma once

#include <cstdint>

#include "flash_attn.h"
#include "host/runtime.h"

namespace flash_attn {

// Maximum number of queries per sequence.
inline constexpr int32_t kMaxSplitQueries = 16;

struct SplitPlan {
  bool wide;           // tiles of 64 rows instead of 16
  int32_t row_tiles;   // tiles of packed rows of one key head
  int32_t n_splits;
  uint64_t workspace;  // bytes
};

SplitPlan plan_splits(const flash_attn_params &params, const Device &device);

// Workspace that suffices for every batch and length with the head_dim and n_splits of `params`.
uint64_t largest_workspace(const flash_attn_params &params, const Device &device);

}  // namespace flash_attn
