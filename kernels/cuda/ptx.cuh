#pragma once

// The tensor-core and asynchronous-copy instructions of SM80 and later, one function each. The
// emulator's versions are in test/emulator/ptx_twins.h. Only this file may contain assembly.

#include "prelude.cuh"

#ifdef FORGE_EMULATOR

DEVICE void copy_async_16(void* to, const void* from, bool valid) {
  emulator::copy_async(to, from, 16, valid);
}
template <u32 bytes>
DEVICE void copy_async(void* to, const void* from) {
  emulator::copy_async(to, from, bytes, true);
}
DEVICE void commit_copies() { emulator::commit_async_copies(); }
template <int left>
DEVICE void wait_copies() {
  emulator::wait_async_copies(left);
}
DEVICE void load_matrices(u32 (&r)[4], const void* row) { emulator::ldmatrix(r, 4, row, false); }
DEVICE void load_matrices_transposed(u32 (&r)[4], const void* row) {
  emulator::ldmatrix(r, 4, row, true);
}
DEVICE void multiply_add(f16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const u32 b[2] = {b0, b1};
  emulator::mma<emulator::half_of>(c, a, b);
}
DEVICE void multiply_add(bf16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const u32 b[2] = {b0, b1};
  emulator::mma<emulator::brain_of>(c, a, b);
}
DEVICE float fast_exp2(float x) { return exp2f(x); }
DEVICE u32 subtract_halves(u32 a, u32 b) {
  return emulator::for_halves(a, b, [](float x, float y) { return x - y; });
}
DEVICE u32 multiply_halves(u32 a, u32 b) {
  return emulator::for_halves(a, b, [](float x, float y) { return x * y; });
}
DEVICE u32 fma_halves(u32 a, u32 b, u32 c) { return emulator::fma_halves(a, b, c); }
DEVICE u32 and_or(u32 word, u32 mask, u32 bits) { return (word & mask) | bits; }
DEVICE u32 in_own_register(u32 word) { return word; }

#else

DEVICE u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

// Starts to copy 16 bytes from global to shared memory; copies zeros if not `valid`.
DEVICE void copy_async_16(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
               "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
// Starts to copy 4, 8 or 16 bytes; 16 pass the L1 cache.
template <u32 bytes>
DEVICE void copy_async(void* to, const void* from) {
  if constexpr (bytes == 16) {
    copy_async_16(to, from, true);
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from),
                 "n"(bytes)
                 : "memory");
  }
}
// Ends a group of copies; wait_copies<n> waits until at most the last n groups are in flight.
DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int left>
DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

// Loads four 8 x 8 matrices of 16-bit numbers from shared memory, as operands of multiply_add: lane
// l passes the 16-byte row l % 8 of matrix l / 8.
DEVICE void load_matrices(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
DEVICE void load_matrices_transposed(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// c[16, 8] += a[16, 16] b[16, 8] by the warp. With g = lane / 4 and t = lane % 4, a[i] holds row
// g + 8 (i % 2), columns 2t, 2t+1 (+ 8 for i >= 2); b0 and b1 hold column g, rows 2t, 2t+1 (+ 8);
// c[i] holds row g + 8 (i / 2), column 2t + i % 2.
DEVICE void multiply_add(f16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void multiply_add(bf16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2^x with an error of up to two units in the last place; results below 2^-126 are 0.
DEVICE float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// a - b and a * b of two F16 in a word, rounded to nearest.
DEVICE u32 subtract_halves(u32 a, u32 b) {
  u32 result;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
DEVICE u32 multiply_halves(u32 a, u32 b) {
  u32 result;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
// a * b + c, rounded once.
DEVICE u32 fma_halves(u32 a, u32 b, u32 c) {
  u32 result;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}
// Both logical operations in one instruction; the compiler takes two if mask and bits are
// constants.
DEVICE u32 and_or(u32 word, u32 mask, u32 bits) {
  u32 result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
}
// Returns a word in a register of its own. multiply_add takes four registers next to each other;
// without this, the compiler moves parts of a 16-byte load there for each product.
DEVICE u32 in_own_register(u32 word) {
  u32 result;
  asm("prmt.b32 %0, %1, %1, 0x3210;" : "=r"(result) : "r"(word));
  return result;
}

#endif

// Converts four signed bytes, plus 128 each, to two words of F16: the byte in the low mantissa bits
// of 1024 is 1024 + byte, from which an exact subtraction leaves the signed number.
DEVICE uint2 bytes_to_halves(u32 bytes) {
  constexpr u32 kTwice1152 = 0x64806480u;
  return make_uint2(subtract_halves(__byte_perm(bytes, 0x64646464u, 0x4140), kTwice1152),
                    subtract_halves(__byte_perm(bytes, 0x64646464u, 0x4342), kTwice1152));
}
