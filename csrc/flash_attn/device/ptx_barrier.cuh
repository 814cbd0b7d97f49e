// Barriers of SM90: mbarriers in shared memory, which count arrivals and bytes, and the sixteen
// named barriers of a block.
#pragma once

#include "threads.cuh"

namespace flash_attn {

// A phase of a barrier ends when all arrivals have been made and all expected bytes have been
// copied.
struct alignas(8) Barrier {
  uint64_t state;
};

FA_DEVICE void barrier_init(Barrier &barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(arrivals)
               : "memory");
}

// Makes initialized barriers visible to the copy engine; a block barrier makes them visible to the
// block.
FA_DEVICE void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

FA_DEVICE void barrier_arrive(Barrier &barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier))
               : "memory");
}

// Arrives, and adds `bytes` of copies to what the phase waits for.
FA_DEVICE void barrier_arrive_expecting(Barrier &barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   shared_address(&barrier)),
               "r"(bytes)
               : "memory");
}

// Waits for the end of the phase of the given parity. Phases are numbered from 0; the phase before
// phase 0 counts as ended.
FA_DEVICE void barrier_wait(Barrier &barrier, int parity) {
  uint32_t ended;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(ended)
        : "r"(shared_address(&barrier)), "r"(parity)
        : "memory");
  } while (ended == 0);
}

// Waits until `threads` threads have arrived at the named barrier, by either function.
FA_DEVICE void named_barrier_wait(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Arrives at a named barrier without waiting.
FA_DEVICE void named_barrier_arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

FA_DEVICE void warp_barrier() { __syncwarp(); }

// Makes this thread's writes to shared memory visible to the copy engine and wgmma.
FA_DEVICE void async_proxy_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Changes the number of registers of this warpgroup.
template <int kRegisters>
FA_DEVICE void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
FA_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace flash_attn
