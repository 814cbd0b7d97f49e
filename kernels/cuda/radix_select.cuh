#pragma once

// Finds the k-th largest of many numbers without sorting, or, with weights, the number at which the
// weights from the largest down reach a goal. Works digit by digit from the highest, with
// histograms of the numbers that share the digits found so far (T. Alabi et al., "Fast k-selection
// algorithms for graphics processing units", 2012).

#include "warp.cuh"

// Maps floats to unsigned integers of the same order.
DEVICE u32 key_of(float x) {
  const u32 bits = __float_as_uint(x);
  return bits ^ ((bits & 0x80000000u) != 0 ? 0xffffffffu : 0x80000000u);
}
// The key of -infinity, which is no candidate; all lower keys are none either.
constexpr u32 kNoCandidate = 0x007fffffu;

struct Selected {
  u32 key;     // the largest with weight(keys >= key) >= goal; 0 if the total is below the goal
  u64 above;   // weight of the keys above
  u64 equal;   // weight of the keys equal to it
};

// Shared memory of a selection. Weights are two 32-bit words: shared memory has no 64-bit addition,
// and a compare-and-swap loop would iterate once for each of the many threads that update the same
// digit. The thread that overflows the low word carries into the high word.
struct SelectShared {
  u32 low[256];
  u32 high[256];
  u32 digit;
  u64 above;
  u64 equal;
};

DEVICE void add_weight(SelectShared& shared, u32 digit, u64 weight) {
  const u32 low = u32(weight);
  const u32 before = atomicAdd(&shared.low[digit], low);
  const u32 high = u32(weight >> 32) + (before + low < before ? 1 : 0);
  if (high != 0) atomicAdd(&shared.high[digit], high);
}
DEVICE u64 weight_at(const SelectShared& shared, u32 digit) {
  return u64(shared.high[digit]) << 32 | shared.low[digit];
}

// Finds the highest digit at which the weights from the top reach `goal`. Called by warp 0.
DEVICE void find_digit(SelectShared& shared, u64 goal) {
  constexpr u32 kEach = 256 / kWarp;
  const u32 top = 255 - lane_id() * kEach;  // this lane has digits top .. top - 7
  u64 own = 0;
  for (u32 i = 0; i < kEach; ++i) own += weight_at(shared, top - i);
  const u64 sum = warp_prefix_sum(own);
  const u64 before = sum - own;
  const u32 reached = __ballot_sync(kAllLanes, sum >= goal);
  // If the total is below the goal, the last lane takes its last digit.
  const u32 lane = reached != 0 ? u32(__ffs(i32(reached))) - 1 : kWarp - 1;
  if (lane_id() != lane) return;
  u64 above = before;
  u32 digit = top;
  while (digit > top - (kEach - 1) && above + weight_at(shared, digit) < goal) {
    above += weight_at(shared, digit--);
  }
  shared.digit = digit;
  shared.above = above;
  shared.equal = weight_at(shared, digit);
}

// `visit(take)` calls take(key, weight) for the numbers of this thread; all threads of the block
// together visit every number once. All threads receive the result.
template <class Visit>
DEVICE Selected radix_select(SelectShared& shared, u64 goal, Visit visit) {
  Selected found = {0, 0, 0};
  for (i32 shift = 24; shift >= 0; shift -= 8) {
    for (u32 i = threadIdx.x; i < 256; i += blockDim.x) shared.low[i] = shared.high[i] = 0;
    __syncthreads();
    const u32 prefix = found.key;
    visit([&](u32 key, u64 weight) {
      // Compare the digits above this one; a shift by 32 would keep them all.
      if (shift == 24 || (key ^ prefix) >> (shift + 8) == 0) {
        add_weight(shared, key >> shift & 255, weight);
      }
    });
    __syncthreads();
    if (warp_id() == 0) find_digit(shared, goal - found.above);
    __syncthreads();
    found.key |= shared.digit << shift;
    found.above += shared.above;
    found.equal = shared.equal;
    __syncthreads();
  }
  return found;
}
