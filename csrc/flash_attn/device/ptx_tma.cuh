// Copies by the tensor memory accelerator of SM90: one thread starts the copy of a box of a tensor.
#pragma once

#include "ptx_barrier.cuh"
#include "tensor_map.h"

namespace flash_attn {

FA_DEVICE void prefetch_tensor_map(const TensorMap &map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Order in which L2 gives up lines that a copy reads.
using CachePolicy = uint64_t;

// For data that other blocks read soon.
FA_DEVICE CachePolicy kept_in_cache() {
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// For data that other blocks read meanwhile.
FA_DEVICE CachePolicy evicted_in_turn() {
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// For data that is read once.
FA_DEVICE CachePolicy read_once() {
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Starts the copy of a box; its bytes count for the barrier.
FA_DEVICE void copy_box(void *shared, const TensorMap &map, Barrier &barrier, CachePolicy policy,
                        int column, int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(column), "r"(row), "r"(head), "r"(batch),
      "l"(policy)
      : "memory");
}

}  // namespace flash_attn
