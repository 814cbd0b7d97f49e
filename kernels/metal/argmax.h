#pragma once

// Shared by the two stages of the argmax: partial results, and how to merge two of them.

#include "sampling.h"

CONSTANT uint kNoId = 0xffffffffu;

inline ArgmaxPartial no_partial() { return {-INFINITY, kNoId, 0.0f, 0u}; }

inline ArgmaxPartial merged(ArgmaxPartial a, ArgmaxPartial b) {
  const bool b_first = b.value > a.value || (b.value == a.value && b.id < a.id);
  const float largest = b_first ? b.value : a.value;
  // If the largest is -infinity, no candidate was seen; +infinity sets `bad`, so its sum is unused.
  const float sum = largest > -INFINITY ? a.sum * precise::exp(a.value - largest) +
                                              b.sum * precise::exp(b.value - largest)
                                        : 0.0f;
  return {largest, b_first ? b.id : a.id, sum, a.bad | b.bad};
}

inline ArgmaxPartial lanes_merged(ArgmaxPartial own) {
  for (ushort bits = 16; bits > 0; bits /= 2) {
    const ArgmaxPartial other = {simd_shuffle_xor(own.value, bits), simd_shuffle_xor(own.id, bits),
                                 simd_shuffle_xor(own.sum, bits), simd_shuffle_xor(own.bad, bits)};
    own = merged(own, other);
  }
  return own;
}

// Merges the partial results of all threads; the result is in thread 0.
inline ArgmaxPartial group_merged(ArgmaxPartial own, threadgroup ArgmaxPartial* parts, Place p) {
  own = lanes_merged(own);
  if (p.lane == 0) parts[p.simdgroup] = own;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  ArgmaxPartial part = no_partial();
  if (p.lane < p.n_simdgroups) part = parts[p.lane];
  return lanes_merged(part);
}
