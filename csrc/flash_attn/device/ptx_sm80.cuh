// Copies and matrix products of SM80, one function per instruction.
#pragma once

#include "device/threads.cuh"
#include "device/types.h"

namespace flash_attn {

// Starts to copy 16 bytes to shared memory, bypassing L1.
FA_DEVICE void copy_async_16(void *shared, const void *global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(shared)),
               "l"(global)
               : "memory");
}

// As above, of the first `bytes`; the others become zeros.
FA_DEVICE void copy_async_part(void *shared, const void *global, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(bytes)
               : "memory");
}

// As above; if not `valid`, writes zeros and reads nothing.
FA_DEVICE void copy_async_16(void *shared, const void *global, bool valid) {
  copy_async_part(shared, global, valid ? 16 : 0);
}

// Makes a group of the copies that this thread started since its last group.
FA_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most kPending of this thread's groups are in flight.
template <int kPending>
FA_DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Loads four 8x8 matrices of 16-bit elements; lane l passes row l % 8 of matrix l / 8. Of each
// matrix, lane l receives elements (l / 4, 2 (l % 4)) and (l / 4, 2 (l % 4) + 1).
FA_DEVICE void load_matrices(uint32_t (&to)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// As load_matrices, each matrix transposed.
FA_DEVICE void load_matrices_transposed(uint32_t (&to)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// c[16x8] += a[16x16] b[16x8]. Lane l holds elements (l / 4, 2 (l % 4)) and (l / 4, 2 (l % 4) + 1)
// of c, and the same two eight rows below.
template <class T>
FA_DEVICE void multiply_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <>
FA_DEVICE void multiply_16x8x16<f16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                     uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
FA_DEVICE void multiply_16x8x16<bf16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                      uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace flash_attn
