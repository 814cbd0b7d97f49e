#pragma once

// Finds the k-th largest of many numbers without sorting, or, with weights, the number at which the
// weights from the largest down reach a goal. Works digit by digit from the highest, with
// histograms of the numbers that share the digits found so far (T. Alabi et al., "Fast k-selection
// algorithms for graphics processing units", 2012).

#include "simd.h"

// Maps floats to unsigned integers of the same order, and back.
inline uint key_of(float x) {
  const uint bits = as_type<uint>(x);
  return bits ^ ((bits & 0x80000000u) != 0 ? 0xffffffffu : 0x80000000u);
}
inline float float_of(uint key) {
  return as_type<float>(key ^ ((key & 0x80000000u) != 0 ? 0x80000000u : 0xffffffffu));
}
// The key of -infinity, which is no candidate; all lower keys are none either.
CONSTANT uint kNoCandidate = 0x007fffffu;

struct Selected {
  uint key;     // the largest with weight(keys >= key) >= goal; 0 if the total is below the goal
  ulong above;  // weight of the keys above
  ulong equal;  // weight of the keys equal to it
};

// Threadgroup memory of a selection. Weights are two 32-bit words, since there are no 64-bit atomic
// additions. The thread that overflows the low word carries into the high word.
struct SelectMemory {
  uint low[256];
  uint high[256];
  uint digit;
  ulong above;
  ulong equal;
};

inline void add_weight(threadgroup SelectMemory& memory, uint digit, ulong weight) {
  const uint low = uint(weight);
  const uint before = atomic_fetch_add_explicit((threadgroup atomic_uint*)&memory.low[digit], low,
                                                memory_order_relaxed);
  const uint high = uint(weight >> 32) + (before + low < before ? 1 : 0);
  if (high != 0) {
    atomic_fetch_add_explicit((threadgroup atomic_uint*)&memory.high[digit], high,
                              memory_order_relaxed);
  }
}
inline ulong weight_at(threadgroup const SelectMemory& memory, uint digit) {
  return ulong(memory.high[digit]) << 32 | memory.low[digit];
}

// Finds the highest digit at which the weights from the top reach `goal`. Called by SIMD group 0.
inline void find_digit(threadgroup SelectMemory& memory, ulong goal, uint lane) {
  const uint each = 256 / kLanes;
  const uint top = 255 - lane * each;  // this lane has digits top .. top - 7
  ulong own = 0;
  for (uint i = 0; i < each; ++i) own += weight_at(memory, top - i);
  const ulong sum = lanes_prefix_sum(own, lane);
  const uint reached = lanes_ballot(sum >= goal);
  // If the total is below the goal, the last lane takes its last digit.
  if (lane != (reached != 0 ? ctz(reached) : kLanes - 1)) return;
  ulong above = sum - own;
  uint digit = top;
  while (digit > top - (each - 1) && above + weight_at(memory, digit) < goal) {
    above += weight_at(memory, digit--);
  }
  memory.digit = digit;
  memory.above = above;
  memory.equal = weight_at(memory, digit);
}

// Counts a key in the histogram of the digit at `shift` if its digits above match `prefix`.
struct Histogram {
  threadgroup SelectMemory* memory;
  uint prefix;
  uint shift;

  void take(uint key, ulong weight) const {
    // A shift by 32 would keep all digits.
    if (shift == 24 || (key ^ prefix) >> (shift + 8) == 0) {
      add_weight(*memory, key >> shift & 255, weight);
    }
  }
};

// `numbers.visit(histogram)` calls histogram.take(key, weight) for the numbers of this thread; all
// threads of the threadgroup together visit every number once. All threads receive the result.
template <class Numbers>
inline Selected radix_select(threadgroup SelectMemory& memory, ulong goal,
                             thread const Numbers& numbers, Place p) {
  Selected found = {0, 0, 0};
  for (uint digit = 0; digit < 4; ++digit) {
    const uint shift = 24 - 8 * digit;
    for (uint i = p.thread_index; i < 256; i += threads_of(p)) memory.low[i] = memory.high[i] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const Histogram histogram = {&memory, found.key, shift};
    numbers.visit(histogram);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (p.simdgroup == 0) find_digit(memory, goal - found.above, p.lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    found.key |= memory.digit << shift;
    found.above += memory.above;
    found.equal = memory.equal;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  return found;
}
