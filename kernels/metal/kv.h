#pragma once

// The pages of a KV cache (arguments.h, KvPages), stored in a buffer of bytes.

#include "simd.h"

// Q8_0: signed bytes with one scale for each 32.
struct q8 {
  i8 bits;
};
CONSTANT uint kScaleGroup = 32;

// The keys or values of one head in one page, of type T.
template <class T>
struct KvRows {
  device u8* rows;
  device u8* scales;
  uint dim;
  uint stride;

  device T* row(uint slot) const { return (device T*)rows + ulong(slot) * stride; }
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

// A SIMD group per group: scale = largest / 127, rounded to F16, and numbers rounded to the nearest
// multiple of it. A NaN or infinity makes the scale NaN, and so the whole group.
template <class Values>
inline void store_row(KvRows<q8> to, uint slot, Values values, Place p) {
  for (uint group = p.simdgroup; group * kScaleGroup < to.dim; group += p.n_simdgroups) {
    const uint i = group * kScaleGroup + p.lane;
    const float value = i < to.dim ? values[i] : 0.0f;
    const bool finite = lanes_max(value - value == 0.0f ? 0.0f : 1.0f) == 0.0f;
    const half rounded = half(lanes_max(fabs(value)) / 127.0f);
    const float scale = float(rounded);
    const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
    const float multiple = fmin(fmax(rint(value * inverse), -127.0f), 127.0f);
    if (i < to.dim) to.row(slot)[i].bits = finite ? i8(multiple) : i8(0);
    if (p.lane == 0) to.row_scales(slot)[group] = finite ? rounded : half(NAN);
  }
}
