#pragma once

// What the two stages of the argmax share: partial results, and how two become one.

#include "sampling.h"

CONSTANT uint kNoId = 0xffffffffu;

inline ArgmaxPartial no_partial() { return {-INFINITY, kNoId, 0.0f, 0u}; }

inline ArgmaxPartial merged(ArgmaxPartial a, ArgmaxPartial b) {
  const bool b_first = b.value > a.value || (b.value == a.value && b.id < a.id);
  const float largest = b_first ? b.value : a.value;
  // Nothing has been seen where the largest is -infinity; +infinity is bad, whatever the sum.
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

// Of all threads, in thread 0.
inline ArgmaxPartial group_merged(ArgmaxPartial own, threadgroup ArgmaxPartial* parts, Place p) {
  own = lanes_merged(own);
  if (p.lane == 0) parts[p.simdgroup] = own;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  ArgmaxPartial part = no_partial();
  if (p.lane < p.n_simdgroups) part = parts[p.lane];
  return lanes_merged(part);
}
