#pragma once

// The pages of a KV cache. A page holds `page_tokens` tokens of one layer. Each KV head has its
// keys, then its values, so that the tile read by an attention block is contiguous:
//
//   page: head 0 | head 1 | ...          head_bytes each
//   head: K rows [page_tokens][k_dim] | K scales | V rows [page_tokens][v_dim] | V scales
//
// Scales exist in Q8_0 caches only: an F16 for each 32 numbers of a row, [page_tokens][dim / 32
// rounded up]. Each of the four parts is padded to 16 bytes. If values are the first v_dim numbers
// of the keys, only K rows and their scales exist.

#include "warp.cuh"

// Q8_0: signed bytes with one scale for each 32.
struct q8 {
  i8 bits;
};
constexpr u32 kScaleGroup = 32;

// The keys or values of one head in one page.
template <class T>
struct KvRows {
  u8* rows;
  u8* scales;
  u32 dim;
  u32 stride;

  DEVICE_MEMBER T* row(u32 slot) const { return reinterpret_cast<T*>(rows) + u64(slot) * stride; }
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

// A warp per group: scale = largest / 127, rounded to F16, and numbers rounded to the nearest
// multiple of it. A NaN or infinity makes the scale NaN, and so the whole group.
DEVICE void store_row(const KvRows<q8>& to, u32 slot, const float* values) {
  for (u32 group = warp_id(); group * kScaleGroup < to.dim; group += blockDim.x / kWarp) {
    const u32 i = group * kScaleGroup + lane_id();
    const float value = i < to.dim ? values[i] : 0.0f;
    const bool finite = warp_max(value - value == 0.0f ? 0.0f : 1.0f) == 0.0f;
    const f16 rounded = to_f16(warp_max(fabsf(value)) / 127.0f);
    const float scale = to_float(rounded);
    const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
    const float multiple = fminf(fmaxf(rintf(value * inverse), -127.0f), 127.0f);
    if (i < to.dim) to.row(slot)[i].bits = finite ? i8(multiple) : i8(0);
    if (lane_id() == 0) {
      to.row_scales(slot)[group] = finite ? rounded : to_f16(FORGE_INFINITY - FORGE_INFINITY);
    }
  }
}
