#include "top_logits.h"

#include <algorithm>
#include <cmath>

namespace forge::cpu {

namespace {

// Drops all but the best k, which it leaves in no order, but the worst of them last.
void keep_best(std::vector<Candidate>& candidates, uint64_t k) {
  if (candidates.size() <= k) return;
  const auto worst = candidates.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(candidates.begin(), worst, candidates.end(), better);
  candidates.resize(k);
}

}  // namespace

void select_top(const KernelTable& kernels, const float* logits, uint64_t n, uint64_t k,
                std::vector<Candidate>& out) {
  if (k == 0) {
    out.clear();
    return;
  }
  const uint64_t room = std::max<uint64_t>(2 * k, k + 256);
  float threshold = -INFINITY;
  for (uint64_t i = kernels.find_above(logits, 0, n, threshold); i < n;
       i = kernels.find_above(logits, i + 1, n, threshold)) {
    out.push_back({static_cast<int32_t>(i), logits[i]});
    if (out.size() >= room) {
      keep_best(out, k);
      // From now on only what reaches the worst of k can enter. What equals it may still win by its
      // id over a candidate that the caller put in.
      threshold = std::nextafter(static_cast<float>(out[k - 1].logit), -INFINITY);
    }
  }
  keep_best(out, k);
  std::sort(out.begin(), out.end(), better);
}

void append_above(const KernelTable& kernels, const float* logits, uint64_t n, float threshold,
                  std::vector<Candidate>& out) {
  for (uint64_t i = kernels.find_above(logits, 0, n, threshold); i < n;
       i = kernels.find_above(logits, i + 1, n, threshold)) {
    out.push_back({static_cast<int32_t>(i), logits[i]});
  }
}

}  // namespace forge::cpu
