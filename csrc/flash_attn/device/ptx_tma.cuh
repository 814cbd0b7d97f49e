// Copies by the tensor memory accelerator of SM90: one thread starts the copy of a box of a tensor.
#pragma once

#include "device/ptx_barrier.cuh"
#include "device/tensor_map.h"

namespace flash_attn {

FA_DEVICE void prefetch_tensor_map(const TensorMap &map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Starts the copy of a box; its bytes count for the barrier.
FA_DEVICE void copy_box(void *shared, const TensorMap &map, Barrier &barrier, int column, int row,
                        int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(shared)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}

}  // namespace flash_attn
