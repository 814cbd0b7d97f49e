#pragma once

// Sums and maxima over the lanes of a SIMD group and the threads of a threadgroup. All threads
// receive the result. The order of addition is fixed, so results do not depend on scheduling.

#include "prelude.h"

// The position of a thread in its threadgroup of whole SIMD groups, at most 32.
struct Place {
  uint thread_index;
  uint lane;
  uint simdgroup;
  uint n_simdgroups;
};
inline uint threads_of(Place p) { return p.n_simdgroups * kLanes; }

inline float lanes_sum(float x) { return simd_sum(x); }
inline uint lanes_sum(uint x) { return simd_sum(x); }

// SIMD operations do not support 64-bit numbers.
inline ulong shuffled_xor(ulong x, ushort bits) {
  return ulong(simd_shuffle_xor(uint(x >> 32), bits)) << 32 | simd_shuffle_xor(uint(x), bits);
}
inline ulong shuffled_up(ulong x, ushort by) {
  return ulong(simd_shuffle_up(uint(x >> 32), by)) << 32 | simd_shuffle_up(uint(x), by);
}
inline ulong shuffled(ulong x, ushort lane) {
  return ulong(simd_shuffle(uint(x >> 32), lane)) << 32 | simd_shuffle(uint(x), lane);
}
inline ulong lanes_sum(ulong x) {
  for (ushort bits = 16; bits > 0; bits /= 2) x += shuffled_xor(x, bits);
  return x;
}

// Sum over this lane and the lanes before it.
inline ulong lanes_prefix_sum(ulong x, uint lane) {
  for (ushort by = 1; by < kLanes; by *= 2) {
    const ulong other = shuffled_up(x, by);
    if (lane >= by) x += other;
  }
  return x;
}

// NaN is ignored, which simd_max does not guarantee.
inline float lanes_max(float x) {
  for (ushort bits = 16; bits > 0; bits /= 2) x = fmax(x, simd_shuffle_xor(x, bits));
  return x;
}

inline uint lanes_ballot(bool vote) {
  return uint(static_cast<simd_vote::vote_t>(simd_ballot(vote)));
}

// `partial` is threadgroup memory of 32 elements that must stay unused until the next barrier of
// the threadgroup.
template <class T>
inline T group_sum(T x, threadgroup T* partial, Place p) {
  x = lanes_sum(x);
  if (p.lane == 0) partial[p.simdgroup] = x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return lanes_sum(p.lane < p.n_simdgroups ? partial[p.lane] : T(0));
}

inline float group_max(float x, threadgroup float* partial, Place p) {
  x = lanes_max(x);
  if (p.lane == 0) partial[p.simdgroup] = x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return lanes_max(p.lane < p.n_simdgroups ? partial[p.lane] : -INFINITY);
}
