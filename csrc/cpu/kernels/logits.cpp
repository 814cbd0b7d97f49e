// Passes over a row of logits.

#include "../kernel_table.h"
#include "vector_math.h"

namespace forge::cpu::FORGE_TARGET {

LogitScan scan(const float* x, uint64_t n) {
  Vec most = set(-__builtin_inff());
  // x - x is 0 for finite x, NaN otherwise; a second pass looks for NaN and +infinity.
  Vec odd = zero();
  uint64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec a = load(x + i);
    most = max(a, most);
    odd = odd + (a - a);
  }
  LogitScan result = {largest(most), false};
  bool look_again = !(sum(odd) == 0.0f);
  for (; i < n; ++i) {
    if (x[i] > result.largest) result.largest = x[i];
    look_again |= !(x[i] - x[i] == 0.0f);
  }
  for (i = 0; look_again && i < n && !result.has_nan; ++i) {
    result.has_nan = !(x[i] < __builtin_inff());
  }
  return result;
}

double sum_exp(const float* x, uint64_t n, float largest, float scale, float* terms,
               double* sums) {
  const Vec most = set(largest), factor = set(scale);
  double total = 0;
  for (uint64_t begin = 0; begin < n; begin += kSumBlock) {
    const uint64_t end = begin + kSumBlock < n ? begin + kSumBlock : n;
    Vec part = zero();
    uint64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      const Vec term = exp((load(x + i) - most) * factor);
      part = part + term;
      if (terms) store(terms + i, term);
    }
    double block = sum(part);
    if (i < end) {
      const int m = static_cast<int>(end - i);
      float lanes[kLanes];
      store(lanes, exp((load_n(x + i, m) - most) * factor));
      for (int j = 0; j < m; ++j) block += lanes[j];
      if (terms) memcpy(terms + i, lanes, (end - i) * sizeof(float));
    }
    if (sums) sums[begin / kSumBlock] = block;
    total += block;
  }
  return total;
}

uint64_t find_above(const float* x, uint64_t begin, uint64_t n, float threshold) {
  constexpr uint64_t kBlock = 4 * kLanes;
  uint64_t i = begin;
  for (; i + kBlock <= n; i += kBlock) {
    Vec most = load(x + i);
    for (uint64_t j = kLanes; j < kBlock; j += kLanes) most = max(load(x + i + j), most);
    if (largest(most) > threshold) break;
  }
  while (i < n && !(x[i] > threshold)) ++i;
  return i;
}

}  // namespace forge::cpu::FORGE_TARGET
