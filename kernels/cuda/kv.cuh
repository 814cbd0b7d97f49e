#pragma once

// The pages of a KV cache. A page holds `page_tokens` tokens of one layer. Each KV head has its
// keys, then its values, so that the tile read by an attention block is contiguous:
//
//   page: head 0 | head 1 | ...          head_bytes each
//   head: K rows [page_tokens][k_dim] | K scales | V rows [page_tokens][v_dim] | V scales
//
// Scales exist in Q8_0 and Q4_0 caches only: an F16 for each group of 32 numbers of a row,
// [page_tokens][dim / 32 rounded up]. Each of the four parts is padded to 16 bytes. If values are
// the first v_dim numbers of the keys, only K rows and their scales exist.

#include "warp.cuh"

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
constexpr u32 kScaleGroup = 32;

template <class T>
struct KvBytes {
  // Returns the bytes of n numbers of a row.
  static DEVICE_MEMBER constexpr u32 of(u32 n) { return n * sizeof(T); }
};
template <>
struct KvBytes<q4> {
  static DEVICE_MEMBER constexpr u32 of(u32 n) {
    return (n + kScaleGroup - 1) / kScaleGroup * (kScaleGroup / 2);
  }
};

// The keys or values of one head in one page.
template <class T>
struct KvRows {
  u8* rows;
  u8* scales;
  u32 dim;
  u32 stride;

  DEVICE_MEMBER T* row(u32 slot) const {
    return reinterpret_cast<T*>(rows + u64(slot) * KvBytes<T>::of(stride));
  }
  DEVICE_MEMBER f16* row_scales(u32 slot) const {
    return reinterpret_cast<f16*>(scales) + u64(slot) * ((stride + kScaleGroup - 1) / kScaleGroup);
  }
};

template <class T>
DEVICE KvRows<T> keys_of(const KvCache& kv, u32 page, u32 head) {
  u8* base = kv.data + page * kv.page_bytes + u64(head) * kv.head_bytes;
  return {base, base + kv.k_scales, kv.k_dim, kv.k_dim};
}

template <class T>
DEVICE KvRows<T> values_of(const KvCache& kv, u32 page, u32 head) {
  u8* base = kv.data + page * kv.page_bytes + u64(head) * kv.head_bytes;
  return {base + kv.v_offset, base + kv.v_scales, kv.v_dim,
          kv.values_in_keys ? kv.k_dim : kv.v_dim};
}

template <class T>
DEVICE float kv_number(const KvRows<T>& rows, u32 slot, u32 i) {
  return to_float(rows.row(slot)[i]);
}
DEVICE float kv_number(const KvRows<q8>& rows, u32 slot, u32 i) {
  return to_float(rows.row_scales(slot)[i / kScaleGroup]) * float(rows.row(slot)[i].bits);
}
DEVICE u32 shift_of_four(u32 i) { return i % 8 / 2 * 4 + i % 2 * 16; }
DEVICE float kv_number(const KvRows<q4>& rows, u32 slot, u32 i) {
  const u32 word = reinterpret_cast<const u32*>(rows.row(slot))[i / 8];
  const i32 number = i32(word >> shift_of_four(i) & 15) - 8;
  return to_float(rows.row_scales(slot)[i / kScaleGroup]) * float(number);
}

// The sequences that keep a token are its own and the branches that it is copied to. Returns entry
// `i`, 0 to *n_copies, of a list of them; -1 for an entry of another token.
template <class Args>
DEVICE i32 keeping_sequence(const Args& a, u32 token, u32 i) {
  if (i == 0) return a.sequences[token];
  return a.copies[i - 1].row == token ? i32(a.copies[i - 1].sequence) : -1;
}

// Returns the page of a position of a sequence.
template <class Args>
DEVICE u32 page_of(const Args& a, i32 sequence, u32 position) {
  return u32(a.page_tables[u64(sequence) * a.page_stride + position / a.kv.page_tokens]);
}

// Stores a row of numbers. Called by all threads of the block.
template <class T>
DEVICE void store_row(const KvRows<T>& to, u32 slot, const float* values) {
  for (u32 i = threadIdx.x; i < to.dim; i += blockDim.x) convert(values[i], to.row(slot)[i]);
}

// A number of a group as a multiple of the group's scale.
struct ScaledNumber {
  f16 scale;
  i32 multiple;
};

// Rounds a number of each lane to the nearest multiple of `unit`, which is rounded to F16 first.
// A NaN or infinity makes the scale NaN, and so the whole group. Called by a warp.
DEVICE ScaledNumber scale_number(float value, float unit, float lowest, float highest) {
  const bool finite = warp_max(value - value == 0.0f ? 0.0f : 1.0f) == 0.0f;
  if (!finite) return {to_f16(FORGE_INFINITY - FORGE_INFINITY), 0};
  const f16 rounded = to_f16(unit);
  const float scale = to_float(rounded);
  const float inverse = scale != 0 ? 1.0f / scale : 0.0f;
  return {rounded, i32(fminf(fmaxf(rintf(value * inverse), lowest), highest))};
}

// The number of the largest magnitude in a warp becomes 127 or -127.
DEVICE ScaledNumber round_to_q8(float value) {
  return scale_number(value, warp_max(fabsf(value)) / 127.0f, -127.0f, 127.0f);
}

// A warp per group.
DEVICE void store_row(const KvRows<q8>& to, u32 slot, const float* values) {
  for (u32 group = warp_id(); group * kScaleGroup < to.dim; group += blockDim.x / kWarp) {
    const u32 i = group * kScaleGroup + lane_id();
    const float value = i < to.dim ? values[i] : 0.0f;
    const ScaledNumber number = round_to_q8(value);
    if (i < to.dim) to.row(slot)[i].bits = i8(number.multiple);
    if (lane_id() == 0) to.row_scales(slot)[group] = number.scale;
  }
}

// A warp per group: the number of the largest magnitude becomes -8.
DEVICE void store_row(const KvRows<q4>& to, u32 slot, const float* values) {
  for (u32 group = warp_id(); group * kScaleGroup < to.dim; group += blockDim.x / kWarp) {
    const u32 i = group * kScaleGroup + lane_id();
    const float value = i < to.dim ? values[i] : 0.0f;
    const float high = warp_max(value), low = warp_max(-value);
    const ScaledNumber number =
        scale_number(value, (high >= low ? high : -low) / -8.0f, -8.0f, 7.0f);
    u32 word = u32(number.multiple + 8) << shift_of_four(i);
    for (u32 distance = 1; distance < 8; distance *= 2) {
      word |= __shfl_xor_sync(kAllLanes, word, distance);
    }
    if (lane_id() % 8 == 0) reinterpret_cast<u32*>(to.row(slot))[i / 8] = word;
    if (lane_id() == 0) to.row_scales(slot)[group] = number.scale;
  }
}
