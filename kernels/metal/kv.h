#pragma once

// The pages of a KV cache (arguments.h, KvPages), stored in a buffer of bytes.

#include "simd.h"

// Q8_0: signed bytes with one scale for each 32.
struct q8 {
  i8 bits;
};
// Q4_0: four bits, 8 more than the number, with one scale for each 32. A word holds eight numbers:
// 0, 2, 4 and 6 in its low half from the lowest bits on, 1, 3, 5 and 7 in its high half. Rows are
// whole groups.
struct q4 {
  u8 bits;
};
CONSTANT uint kScaleGroup = 32;

template <class T>
struct KvBytes {
  // Returns the bytes of n numbers of a row.
  static uint of(uint n) { return n * uint(sizeof(T)); }
};
template <>
struct KvBytes<q4> {
  static uint of(uint n) { return (n + kScaleGroup - 1) / kScaleGroup * (kScaleGroup / 2); }
};

// The keys or values of one head in one page, of type T.
template <class T>
struct KvRows {
  device u8* rows;
  device u8* scales;
  uint dim;
  uint stride;

  device T* row(uint slot) const {
    return (device T*)(rows + ulong(slot) * KvBytes<T>::of(stride));
  }
  device half* row_scales(uint slot) const {
    return (device half*)scales + ulong(slot) * ((stride + kScaleGroup - 1) / kScaleGroup);
  }
};

template <class T>
inline KvRows<T> keys_of(device u8* pages, constant KvPages& kv, uint page, uint head) {
  device u8* base = pages + page * kv.page_bytes + ulong(head) * kv.head_bytes;
  return {base, base + kv.k_scales, kv.k_dim, kv.k_dim};
}

template <class T>
inline KvRows<T> values_of(device u8* pages, constant KvPages& kv, uint page, uint head) {
  device u8* base = pages + page * kv.page_bytes + ulong(head) * kv.head_bytes;
  return {base + kv.v_offset, base + kv.v_scales, kv.v_dim,
          kv.values_in_keys != 0 ? kv.k_dim : kv.v_dim};
}

template <class T>
inline float kv_number(KvRows<T> rows, uint slot, uint i) {
  return to_float(rows.row(slot)[i]);
}
inline float kv_number(KvRows<q8> rows, uint slot, uint i) {
  return float(rows.row_scales(slot)[i / kScaleGroup]) * float(rows.row(slot)[i].bits);
}
inline uint shift_of_four(uint i) { return i % 8 / 2 * 4 + i % 2 * 16; }
inline float kv_number(KvRows<q4> rows, uint slot, uint i) {
  const uint word = ((device const uint*)rows.row(slot))[i / 8];
  const int number = int(word >> shift_of_four(i) & 15) - 8;
  return float(rows.row_scales(slot)[i / kScaleGroup]) * float(number);
}

// The sequences that keep a token are its own and the branches that it is copied to. Returns entry
// `i`, 0 to the number of copies, of a list of them; -1 for an entry of another token.
inline int keeping_sequence(device const int* sequences, device const RowCopy* copies, uint token,
                            uint i) {
  if (i == 0) return sequences[token];
  return copies[i - 1].row == token ? int(copies[i - 1].sequence) : -1;
}

// Returns the rotated pair. Products and sums are fused explicitly, so that a token's digits are
// the same in every kernel.
inline float2 rotated_pair(float2 pair, float cosine, float sine) {
  return float2(fma(pair.x, cosine, -(pair.y * sine)), fma(pair.x, sine, pair.y * cosine));
}

// Stores a row of numbers, called by all threads of the threadgroup. Values is a pointer type.
template <class T, class Values>
inline void store_row(KvRows<T> to, uint slot, Values values, Place p) {
  device T* row = to.row(slot);
  for (uint i = p.thread_index; i < to.dim; i += threads_of(p)) row[i] = rounded<T>(values[i]);
}

// A number of a group as a multiple of the group's scale.
struct ScaledNumber {
  half scale;
  int multiple;
};

// Rounds a number of each lane to the nearest multiple of `unit`, which is rounded to F16 first.
// A NaN or infinity makes the scale NaN, and so the whole group. Called by a SIMD group.
inline ScaledNumber scale_number(float value, float unit, float lowest, float highest) {
  const bool finite = lanes_max(value - value == 0.0f ? 0.0f : 1.0f) == 0.0f;
  if (!finite) return {half(NAN), 0};
  const half rounded = half(unit);
  const float scale = float(rounded);
  const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  return {rounded, int(fmin(fmax(rint(value * inverse), lowest), highest))};
}

// A SIMD group per group: the number of the largest magnitude becomes 127 or -127.
template <class Values>
inline void store_row(KvRows<q8> to, uint slot, Values values, Place p) {
  for (uint group = p.simdgroup; group * kScaleGroup < to.dim; group += p.n_simdgroups) {
    const uint i = group * kScaleGroup + p.lane;
    const float value = i < to.dim ? values[i] : 0.0f;
    const ScaledNumber number =
        scale_number(value, lanes_max(fabs(value)) / 127.0f, -127.0f, 127.0f);
    if (i < to.dim) to.row(slot)[i].bits = i8(number.multiple);
    if (p.lane == 0) to.row_scales(slot)[group] = number.scale;
  }
}

// A SIMD group per group: the number of the largest magnitude becomes -8.
template <class Values>
inline void store_row(KvRows<q4> to, uint slot, Values values, Place p) {
  for (uint group = p.simdgroup; group * kScaleGroup < to.dim; group += p.n_simdgroups) {
    const uint i = group * kScaleGroup + p.lane;
    const float value = i < to.dim ? values[i] : 0.0f;
    const float high = lanes_max(value), low = lanes_max(-value);
    const ScaledNumber number =
        scale_number(value, (high >= low ? high : -low) / -8.0f, -8.0f, 7.0f);
    uint word = uint(number.multiple + 8) << shift_of_four(i);
    for (uint distance = 1; distance < 8; distance *= 2) {
      word |= simd_shuffle_xor(word, ushort(distance));
    }
    if (p.lane % 8 == 0) ((device uint*)to.row(slot))[i / 8] = word;
    if (p.lane == 0) to.row_scales(slot)[group] = number.scale;
  }
}
