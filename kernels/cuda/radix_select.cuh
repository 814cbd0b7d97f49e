#pragma once

// Finds the number at which the weights of many different numbers, from the largest down, reach a
// goal, without sorting. Works digit by digit from the highest in which the numbers differ, with
// histograms of the numbers that share the digits found so far (T. Alabi et al., "Fast k-selection
// algorithms for graphics processing units", 2012).

#include "warp.cuh"

// A histogram in shared memory. Weights are two 32-bit words: shared memory has no 64-bit addition,
// and a compare-and-swap loop would iterate once for each of the many threads that update the same
// digit. The thread that overflows the low word carries into the high word.
template <u32 n>
struct Histogram {
  u32 low[n];
  u32 high[n];

  DEVICE_MEMBER void clear() {
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) low[i] = high[i] = 0;
  }
  DEVICE_MEMBER void add(u32 digit, u64 weight) {
    const u32 own = u32(weight);
    const u32 before = atomicAdd(&low[digit], own);
    const u32 carried = u32(weight >> 32) + (before + own < before ? 1 : 0);
    if (carried != 0) atomicAdd(&high[digit], carried);
  }
  DEVICE_MEMBER u64 at(u32 digit) const { return u64(high[digit]) << 32 | low[digit]; }
};

constexpr u32 kDigitBits = 8;
constexpr u32 kDigits = 1 << kDigitBits;

// Shared memory of a selection.
struct SelectShared {
  Histogram<kDigits> weights;
  u32 counts[kDigits];
  u64 partial[kWarp];
  u32 digit;
  u64 above;
};

// Finds the highest digit at which the weights from the top reach `goal`. Called by warp 0.
DEVICE void find_digit(SelectShared& shared, u64 goal) {
  constexpr u32 kEach = kDigits / kWarp;
  const u32 top = kDigits - 1 - lane_id() * kEach;  // this lane has digits top .. top - 7
  u64 own = 0;
  for (u32 i = 0; i < kEach; ++i) own += shared.weights.at(top - i);
  const u64 sum = warp_prefix_sum(own);
  const u32 reached = __ballot_sync(kAllLanes, sum >= goal);
  // If the total is below the goal, the last lane takes its last digit.
  const u32 lane = reached != 0 ? u32(__ffs(i32(reached))) - 1 : kWarp - 1;
  if (lane_id() != lane) return;
  u64 above = sum - own;
  u32 digit = top;
  while (digit > top - (kEach - 1) && above + shared.weights.at(digit) < goal) {
    above += shared.weights.at(digit--);
  }
  shared.digit = digit;
  shared.above = above;
}

DEVICE u32 bits_of(u64 x) {
  const u32 high = u32(x >> 32);
  return high != 0 ? 64 - u32(__clz(i32(high))) : 32 - u32(__clz(i32(u32(x))));
}

// Returns a bound: the weights of the numbers from it on reach `goal`, and without the smallest of
// them they do not. If the total is below the goal, no number with a weight is below the bound, and
// those without one may be anywhere. `visit(take)`
// calls take(number, weight) for the numbers of this thread; all threads of the block together
// visit every number once. All threads receive the result.
template <class Visit>
DEVICE u64 radix_select(SelectShared& shared, u64 goal, Visit visit) {
  u64 largest = 0, inverse = 0;
  visit([&](u64 number, u64 weight) {
    if (weight == 0) return;
    largest = max(largest, number);
    inverse = max(inverse, ~number);
  });
  largest = block_largest(largest, shared.partial);
  __syncthreads();
  inverse = block_largest(inverse, shared.partial);
  __syncthreads();

  u32 bits = bits_of(largest ^ ~inverse);  // that are still to be found
  u64 bound = bits == 64 ? 0 : largest >> bits << bits;
  u64 above = 0;
  while (bits > 0) {
    const u32 shift = bits > kDigitBits ? bits - kDigitBits : 0;
    shared.weights.clear();
    for (u32 i = threadIdx.x; i < kDigits; i += blockDim.x) shared.counts[i] = 0;
    __syncthreads();
    visit([&](u64 number, u64 weight) {
      // A shift by 64 would not be defined.
      if (weight == 0 || (number ^ bound) >> (bits - 1) >> 1 != 0) return;
      const u32 digit = u32(number >> shift) % kDigits;
      shared.weights.add(digit, weight);
      atomicAdd(&shared.counts[digit], 1u);
    });
    __syncthreads();
    if (warp_id() == 0) find_digit(shared, goal - above);
    __syncthreads();
    const u32 digit = shared.digit;
    bound |= u64(digit) << shift;
    above += shared.above;
    // A single number needs no further digits.
    bits = shared.counts[digit] == 1 ? 0 : shift;
    __syncthreads();
  }
  return bound;
}
