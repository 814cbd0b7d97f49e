#pragma once

// The positions that a query of attention sees: causality, the window, key lengths and a mask.

#include "prelude.cuh"

// The positions visible to one query.
struct Visible {
  u32 begin;
  u32 end;

  // The score of a position, or -infinity for a hidden one.
  DEVICE_MEMBER float shown(float score, u32 position) const {
    return position >= begin && position < end ? score : -FORGE_INFINITY;
  }
};
// `n_keys`: positions of the sequence, for attention without causality.
DEVICE Visible visible_from(u32 position, u32 n_keys, const AttentionArgs& a) {
  const u32 seen = a.chunked ? position % a.window + 1 : a.window;
  const u32 begin = a.window > 0 && position + 1 > a.window ? position + 1 - seen : 0;
  if (a.causal) return {begin, position + 1};
  const bool is_cut = a.window > 0 && position < n_keys && n_keys - position > a.window;
  return {begin, is_cut ? position + a.window : n_keys};
}

// The limits of one query that see no mask, or, below, that a mask narrows.
struct Unmasked : Visible {
  DEVICE_MEMBER Unmasked(const Visible& limits, const AttentionArgs&, u64, u32) : Visible(limits) {}
};
struct Masked : Visible {
  const u32* mask;  // of the query and head
  bool is_bits;

  DEVICE_MEMBER Masked(const Visible& limits, const AttentionArgs& a, u64 token, u32 head)
      : Visible(limits),
        mask(a.mask + (token * a.mask_heads + (a.mask_heads == 1 ? 0 : head)) * *a.mask_stride),
        is_bits(a.mask_is_bits != 0) {}

  DEVICE_MEMBER float shown(float score, u32 position) const {
    if (position < begin || position >= end) return -FORGE_INFINITY;
    if (!is_bits) return score + __uint_as_float(mask[position]);
    return mask[position / 32] >> position % 32 & 1 ? score : -FORGE_INFINITY;
  }
};
