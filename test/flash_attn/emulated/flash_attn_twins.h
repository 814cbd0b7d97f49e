// The instruction wrappers of csrc/flash_attn/device, implemented for the emulator under the same
// names.
#pragma once

#include <cstdint>
#include <cstring>

#include "device.h"
#include "device/types.h"
#include "e4m3.h"
#include "sm90.h"

#define FA_KERNEL void
#define FA_DEVICE inline
#define FA_LAUNCH_BOUNDS(threads, blocks)
#define FA_GRID_CONSTANT const

namespace flash_attn {

FA_DEVICE int thread_index() { return static_cast<int>(emulator::position().thread.x); }
FA_DEVICE int block_x() { return static_cast<int>(emulator::position().block.x); }
FA_DEVICE int block_y() { return static_cast<int>(emulator::position().block.y); }
FA_DEVICE int block_z() { return static_cast<int>(emulator::position().block.z); }
FA_DEVICE int grid_x() { return static_cast<int>(emulator::position().grid_size.x); }

FA_DEVICE void block_barrier() { emulator::wait_for_block("block_barrier", 0); }
FA_DEVICE char *dynamic_shared() { return static_cast<char *>(emulator::dynamic_shared()); }

template <class T>
FA_DEVICE T shuffle_xor(T value, int lanes) {
  return __shfl_xor_sync(0xffffffffu, value, static_cast<uint32_t>(lanes));
}

FA_DEVICE bool any_lane(bool value) { return __ballot_sync(0xffffffffu, value) != 0; }

FA_DEVICE int from_first_lane(int value) { return __shfl_sync(0xffffffffu, value, 0u); }

FA_DEVICE void allow_next_kernel() {}
FA_DEVICE void wait_for_previous_kernel() { emulator::note_wait(); }

FA_DEVICE int fetch_add(int *number, int value) { return atomicAdd(number, value); }

FA_DEVICE int warp_uniform(int value) {
  const int first = __shfl_sync(0xffffffffu, value, 0u);
  if (first != value) emulator::fail("a value that should be the same in all lanes is not");
  return first;
}

FA_DEVICE int forget(int value) { return value; }
FA_DEVICE void compute_here(float, float) {}
FA_DEVICE void compute_here(uintptr_t) {}
FA_DEVICE uint32_t multiply_high(uint32_t a, uint32_t b) { return __umulhi(a, b); }

FA_DEVICE float exp2_fast(float x) { return exp2f(x); }
FA_DEVICE float reciprocal_fast(float x) { return 1.0f / x; }
FA_DEVICE float log2_fast(float x) { return log2f(x); }

template <class T>
uint16_t round_to(float x);
template <>
inline uint16_t round_to<f16>(float x) {
  return forge::f32_to_f16(x);
}
template <>
inline uint16_t round_to<bf16>(float x) {
  return forge::f32_to_bf16(x);
}

template <class T>
FA_DEVICE uint32_t pack(float low, float high) {
  return round_to<T>(low) | static_cast<uint32_t>(round_to<T>(high)) << 16;
}

FA_DEVICE uint32_t pack_e4m3(float first, float second, float third, float fourth) {
  return round_to_e4m3(first) | uint32_t{round_to_e4m3(second)} << 8 |
         uint32_t{round_to_e4m3(third)} << 16 | uint32_t{round_to_e4m3(fourth)} << 24;
}

template <int kOdd>
FA_DEVICE uint32_t every_other_byte(uint32_t a, uint32_t b) {
  const auto half = [](uint32_t word) {
    return (word >> (8 * kOdd) & 0xff) | (word >> (16 + 8 * kOdd) & 0xff) << 8;
  };
  return half(a) | half(b) << 16;
}

template <int kFirst, int kSecond>
FA_DEVICE uint32_t bytes_to_halves(uint32_t word) {
  const auto byte = [&](int i) { return static_cast<float>(word >> (8 * i) & 0xff) - 128.0f; };
  return pack<f16>(byte(kFirst), byte(kSecond));
}

FA_DEVICE uint32_t multiply_halves(uint32_t a, uint32_t b) {
  const auto product = [&](int i) { return emulator::half_of(a, i) * emulator::half_of(b, i); };
  return pack<f16>(product(0), product(1));
}

template <int kA, int kB>
FA_DEVICE uint32_t pair_halves(uint32_t a, uint32_t b) {
  return (a >> (16 * kA) & 0xffff) | (b >> (16 * kB) & 0xffff) << 16;
}

template <int kHalf>
FA_DEVICE float half_to_float(uint32_t pair) {
  return emulator::half_of(pair, kHalf);
}

FA_DEVICE float number_of(f16 value) { return forge::f16_to_f32(value.bits); }
FA_DEVICE float number_of(bf16 value) { return forge::bf16_to_f32(value.bits); }

FA_DEVICE uint32_t load_word(const void *from) {
  if (reinterpret_cast<uintptr_t>(from) % 4 != 0) emulator::fail("a misaligned access");
  uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}
FA_DEVICE void load_words(uint32_t &first, uint32_t &second, const void *from) {
  if (reinterpret_cast<uintptr_t>(from) % 8 != 0) emulator::fail("a misaligned access");
  first = load_word(from);
  second = load_word(static_cast<const char *>(from) + 4);
}

struct alignas(16) Words4 {
  uint32_t word[4];
};

FA_DEVICE void load_16_bytes(Words4 &to, const void *from) {
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0) emulator::fail("a misaligned load of 16 bytes");
  to = *static_cast<const Words4 *>(from);
}

FA_DEVICE void store_16_bytes(void *to, const Words4 &value) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0) emulator::fail("a misaligned store of 16 bytes");
  *static_cast<Words4 *>(to) = value;
  emulator::sm90::note_store(to, sizeof value);
}

FA_DEVICE int load_entry(const int32_t *table, int index, int otherwise) {
  return table == nullptr ? otherwise : table[index];
}

using Floats4 = float[4];

FA_DEVICE void require_16_byte_alignment(const void *address) {
  if (reinterpret_cast<uintptr_t>(address) % 16 != 0) emulator::fail("a misaligned access");
}
FA_DEVICE void load_floats(Floats4 &to, const float *from) {
  require_16_byte_alignment(from);
  for (int i = 0; i < 4; i++) to[i] = from[i];
}
FA_DEVICE void store_floats(float *to, const Floats4 &value) {
  require_16_byte_alignment(to);
  for (int i = 0; i < 4; i++) to[i] = value[i];
}

FA_DEVICE void copy_async_16(void *shared, const void *global) {
  emulator::copy_async(shared, global, 16, true);
}
FA_DEVICE void copy_async_16(void *shared, const void *global, bool valid) {
  emulator::copy_async(shared, global, 16, valid);
}
FA_DEVICE void copy_async_part(void *shared, const void *global, int bytes) {
  for (int at = 0; at < 16; at += 2) {
    emulator::copy_async(static_cast<char *>(shared) + at, static_cast<const char *>(global) + at,
                         2, at < bytes);
  }
}
FA_DEVICE void copy_async_commit() { emulator::commit_async_copies(); }
template <int kPending>
FA_DEVICE void copy_async_wait() {
  emulator::wait_async_copies(kPending);
}

FA_DEVICE void load_matrices(uint32_t (&to)[4], const void *row) {
  emulator::ldmatrix(to, 4, row, false);
}
FA_DEVICE void load_matrices_transposed(uint32_t (&to)[4], const void *row) {
  emulator::ldmatrix(to, 4, row, true);
}

template <class T>
inline constexpr auto value_of = emulator::half_of;
template <>
inline constexpr auto value_of<bf16> = emulator::brain_of;
template <>
inline constexpr auto value_of<e4m3_pair> = e4m3_of;

template <class T>
FA_DEVICE void multiply_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  emulator::mma<value_of<T>>(c, a, b);
}

}  // namespace flash_attn
