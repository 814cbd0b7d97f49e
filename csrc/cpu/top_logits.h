#pragma once

#include <cstdint>
#include <vector>

#include "kernel_table.h"

namespace forge::cpu {

struct Candidate {
  int32_t id;
  double logit;
  double probability = 0;  // relative to the best candidate, once it is known
};

// The order of candidates: the larger logit first, the lower id on ties.
inline bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Leaves in `out` the best k candidates of those in it and of logits[n], best first; logits of
// -infinity are no candidates. Takes one pass, whatever k.
void select_top(const KernelTable& kernels, const float* logits, uint64_t n, uint64_t k,
                std::vector<Candidate>& out);

// Appends the logits above a threshold, in the order of ids.
void append_above(const KernelTable& kernels, const float* logits, uint64_t n, float threshold,
                  std::vector<Candidate>& out);

}  // namespace forge::cpu
