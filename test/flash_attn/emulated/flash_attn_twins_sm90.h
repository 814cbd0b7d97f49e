// The SM90 instruction wrappers of csrc/flash_attn/device, implemented for the emulator.
#pragma once

#include <cstring>
#include <type_traits>

#include "device/tensor_map.h"
#include "flash_attn_twins.h"

namespace flash_attn {

FA_DEVICE uint32_t shared_address(const void *pointer) {
  return emulator::sm90::shared_address(pointer);
}

struct alignas(8) Barrier {
  uint64_t state;
};

FA_DEVICE void barrier_init(Barrier &barrier, int arrivals) {
  emulator::sm90::barrier_init(&barrier.state, arrivals);
}
FA_DEVICE void barrier_init_fence() { emulator::sm90::barrier_init_fence(); }
FA_DEVICE void barrier_arrive(Barrier &barrier) {
  emulator::sm90::barrier_arrive(&barrier.state, 0);
}
FA_DEVICE void barrier_arrive_expecting(Barrier &barrier, int bytes) {
  emulator::sm90::barrier_arrive(&barrier.state, bytes);
}
FA_DEVICE void barrier_wait(Barrier &barrier, int parity) {
  emulator::sm90::barrier_wait(&barrier.state, parity);
}
FA_DEVICE void named_barrier_wait(int number, int threads) {
  emulator::sm90::named_barrier(number, threads, true);
}
FA_DEVICE void named_barrier_arrive(int number, int threads) {
  emulator::sm90::named_barrier(number, threads, false);
}
FA_DEVICE void warp_barrier() { __syncwarp(); }
FA_DEVICE void async_proxy_fence() { emulator::sm90::async_proxy_fence(); }

template <int kRegisters>
FA_DEVICE void release_registers() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
}
template <int kRegisters>
FA_DEVICE void take_registers() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
}

FA_DEVICE void prefetch_tensor_map(const TensorMap &map) {
  static const TensorMap zeros = {};
  if (std::memcmp(&map, &zeros, sizeof map) == 0) emulator::fail("a tensor map without a tensor");
}

using CachePolicy = uint64_t;
FA_DEVICE CachePolicy kept_in_cache() { return 0; }
FA_DEVICE CachePolicy evicted_in_turn() { return 0; }
FA_DEVICE CachePolicy read_once() { return 0; }

FA_DEVICE void copy_box(void *shared, const TensorMap &map, Barrier &barrier, CachePolicy,
                        int column, int row, int head, int batch) {
  emulator::sm90::TensorBox box;
  static_assert(sizeof box <= sizeof map);
  std::memcpy(&box, &map, sizeof box);
  emulator::sm90::copy_box(shared, box, &barrier.state, {column, row, head, batch});
}

FA_DEVICE void product_fence() { emulator::sm90::product_fence(); }
FA_DEVICE void product_commit() { emulator::sm90::commit_products(); }
template <int kPending>
FA_DEVICE void product_wait() {
  emulator::sm90::wait_products(kPending);
}

FA_DEVICE void store_matrices(void *row, const uint32_t (&from)[4]) {
  const int lane = thread_index() % 32;
  for (int i = 0; i < 4; i++) {
    const uint32_t at = __shfl_sync(0xffffffffu, shared_address(row),
                                    static_cast<uint32_t>(8 * i + lane / 4));
    if (at % 16 != 0) emulator::fail("a misaligned row of stmatrix");
    char *const to = dynamic_shared() + at + 4 * (lane % 4);
    std::memcpy(to, &from[i], sizeof from[i]);
    emulator::sm90::note_store(to, sizeof from[i]);
  }
}

template <class T, int kColumns>
struct WarpgroupProduct {
  static constexpr bool kIsE4m3 = std::is_same_v<T, e4m3_pair>;
  FA_DEVICE static void from_shared(float (&c)[1][kColumns / 8][4], uint64_t a, uint64_t b,
                                    bool accumulate) {
    emulator::sm90::issue_product(
        {&c[0][0][0], kColumns, accumulate, nullptr, a, b, false, value_of<T>, kIsE4m3 ? 2 : 1});
  }
  FA_DEVICE static void from_registers(float (&c)[1][kColumns / 8][4], const uint32_t (&a)[4],
                                       uint64_t b) {
    emulator::sm90::issue_product(
        {&c[0][0][0], kColumns, true, a, 0, b, !kIsE4m3, value_of<T>, kIsE4m3 ? 2 : 1});
  }
  FA_DEVICE static void from_registers_by_depth(float (&c)[1][kColumns / 8][4],
                                                const uint32_t (&a)[4], uint64_t b) {
    emulator::sm90::issue_product(
        {&c[0][0][0], kColumns, true, a, 0, b, false, value_of<T>, kIsE4m3 ? 2 : 1});
  }
};

}  // namespace flash_attn
