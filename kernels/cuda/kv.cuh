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

// Numbers i .. i + 3 of a row of n; zeros beyond the last. in_fours: the row begins at a multiple
// of 16 bytes, and n is a multiple of 4.
DEVICE float4 four_of(const float* row, u32 i, u32 n, bool in_fours) {
  if (in_fours) {
    return i < n ? *reinterpret_cast<const float4*>(row + i) : make_float4(0, 0, 0, 0);
  }
  return make_float4(i < n ? row[i] : 0.0f, i + 1 < n ? row[i + 1] : 0.0f,
                     i + 2 < n ? row[i + 2] : 0.0f, i + 3 < n ? row[i + 3] : 0.0f);
}

DEVICE void store_four(float* to, float4 v) { *reinterpret_cast<float4*>(to) = v; }
template <class T>
DEVICE void store_four(T* to, float4 v) {
  *reinterpret_cast<uint2*>(to) = make_uint2(pack_as(T{}, v.x, v.y), pack_as(T{}, v.z, v.w));
}

// The numbers that a warp takes at a time, four neighbours a lane.
constexpr u32 kWarpNumbers = 4 * kWarp;

// Stores n numbers. Called by a warp.
template <class T>
DEVICE void store_numbers(T* to, const float* values, u32 n, bool in_fours) {
  if (in_fours) {
#pragma unroll 1
    for (u32 i = 4 * lane_id(); i < n; i += kWarpNumbers) {
      store_four(to + i, *reinterpret_cast<const float4*>(values + i));
    }
  } else {
#pragma unroll 1
    for (u32 i = lane_id(); i < n; i += kWarp) convert(values[i], to[i]);
  }
}

// Stores a row of a page. in_fours: `values` begins at a multiple of 16 bytes, and the numbers of
// all rows of the cache are multiples of 4. Called by a warp.
template <class T>
DEVICE void store_row(const KvRows<T>& to, u32 slot, const float* values, bool in_fours) {
  store_numbers(to.row(slot), values, to.dim, in_fours);
}

// A number of a group as a multiple of the group's scale.
struct ScaledNumber {
  f16 scale;
  i32 multiple;
};

// The scale of a group of numbers and its inverse: `unit` rounded to F16, or NaN if a number of the
// group is a NaN or infinite.
struct GroupScale {
  f16 scale;
  float inverse;
  bool finite;

  DEVICE_MEMBER GroupScale(float unit, bool is_finite)
      : scale(to_f16(is_finite ? unit : FORGE_INFINITY - FORGE_INFINITY)),
        inverse(to_float(scale) != 0 ? 1.0f / to_float(scale) : 0.0f),
        finite(is_finite) {}
  // The nearest multiple of the scale; 0 of a NaN.
  DEVICE_MEMBER i32 multiple(float value, float lowest, float highest) const {
    return finite ? i32(fminf(fmaxf(rintf(value * inverse), lowest), highest)) : 0;
  }
};
// 0 for a finite number, 1 for others.
DEVICE float not_finite(float x) { return x - x == 0.0f ? 0.0f : 1.0f; }

// Rounds a number of each lane to a multiple of the scale of the warp: the number of the largest
// magnitude becomes 127 or -127.
DEVICE ScaledNumber round_to_q8(float value) {
  const bool finite = warp_max(not_finite(value)) == 0.0f;
  const GroupScale group(warp_max(fabsf(value)) / 127.0f, finite);
  return {group.scale, group.multiple(value, -127.0f, 127.0f)};
}

// Four numbers of each lane, of which eight lanes have a group.
constexpr u32 kGroupLanes = kScaleGroup / 4;
DEVICE float max_of_four(float4 v) { return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)); }
// The largest number of each group; NaN is ignored.
DEVICE float group_max(float4 v) {
  float x = max_of_four(v);
#pragma unroll
  for (u32 lanes = kGroupLanes / 2; lanes > 0; lanes /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lanes));
  }
  return x;
}
DEVICE bool is_group_finite(float4 v) {
  return group_max(make_float4(not_finite(v.x), not_finite(v.y), not_finite(v.z),
                               not_finite(v.w))) == 0.0f;
}

DEVICE void store_row(const KvRows<q8>& to, u32 slot, const float* values, bool in_fours) {
#pragma unroll 1
  for (u32 first = 0; first < to.dim; first += kWarpNumbers) {
    const u32 i = first + 4 * lane_id();
    const float4 v = four_of(values, i, to.dim, in_fours);
    const float4 sizes = make_float4(fabsf(v.x), fabsf(v.y), fabsf(v.z), fabsf(v.w));
    const GroupScale group(group_max(sizes) / 127.0f, is_group_finite(v));
    const float numbers[4] = {v.x, v.y, v.z, v.w};
    u32 word = 0;
#pragma unroll
    for (u32 n = 0; n < 4; ++n) {
      word |= u32(u8(group.multiple(numbers[n], -127.0f, 127.0f))) << 8 * n;
    }
    q8* row = to.row(slot) + i;
    if (in_fours) {
      if (i < to.dim) *reinterpret_cast<u32*>(row) = word;
    } else {
#pragma unroll
      for (u32 n = 0; n < 4; ++n) {
        if (i + n < to.dim) row[n].bits = i8(word >> 8 * n);
      }
    }
    if (i % kScaleGroup == 0 && i < to.dim) to.row_scales(slot)[i / kScaleGroup] = group.scale;
  }
}

// The number of the largest magnitude in a group becomes -8.
DEVICE void store_row(const KvRows<q4>& to, u32 slot, const float* values, bool in_fours) {
#pragma unroll 1
  for (u32 first = 0; first < to.dim; first += kWarpNumbers) {
    const u32 i = first + 4 * lane_id();
    const float4 v = four_of(values, i, to.dim, in_fours);
    const float high = group_max(v), low = group_max(make_float4(-v.x, -v.y, -v.z, -v.w));
    const GroupScale group((high >= low ? high : -low) / -8.0f, is_group_finite(v));
    const float numbers[4] = {v.x, v.y, v.z, v.w};
    u32 word = 0;
#pragma unroll
    for (u32 n = 0; n < 4; ++n) {
      word |= u32(group.multiple(numbers[n], -8.0f, 7.0f) + 8) << shift_of_four(i + n);
    }
    word |= __shfl_xor_sync(kAllLanes, word, 1);
    // Of the last group too, all words exist.
    if (i / kScaleGroup * kScaleGroup >= to.dim) continue;
    if (i % 8 == 0) reinterpret_cast<u32*>(to.row(slot))[i / 8] = word;
    if (i % kScaleGroup == 0) to.row_scales(slot)[i / kScaleGroup] = group.scale;
  }
}
