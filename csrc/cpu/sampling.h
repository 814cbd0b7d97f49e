#pragma once

#include <cstdint>
#include <vector>

#include "../common/step_inputs.h"
#include "kernel_table.h"
#include "top_logits.h"

namespace forge::cpu {

// Chooses tokens as forge_sampling describes, without sorting the vocabulary: passes over the
// logits are vectorised, and only the few tokens that can matter are looked at one by one. Sums
// that decide are taken in double.
class Sampling {
 public:
  Sampling(const KernelTable& kernels, uint32_t n_threads, uint64_t vocabulary);

  // Fills in result `output` from its logits. Each thread has a number of its own; different
  // threads may choose at the same time.
  void choose(const StepInputs& inputs, uint32_t output, const float* logits, ResultBlock& results,
              uint32_t thread);

 private:
  // What one thread works with; filled anew for each output.
  struct Scratch {
    // The logits to choose from: those of the model, or `adjusted`, which is -infinity where a mask
    // forbids a token and where `overrides` holds its changed logit.
    const float* logits;
    std::vector<float> adjusted;
    std::vector<Candidate> overrides;
    std::vector<int32_t> history;
    std::vector<Candidate> candidates;
    std::vector<float> terms;
    std::vector<double> block_sums;
  };

  void adjust(const StepInputs& inputs, const forge_sampling& s, const float* logits,
              Scratch& scratch) const;
  Candidate best(const Scratch& scratch) const;
  // The token, or -1 when none is allowed.
  int32_t choose_token(const forge_sampling& s, Scratch& scratch) const;
  int32_t draw_from_all(const forge_sampling& s, double largest, Scratch& scratch) const;
  void collect_candidates(const forge_sampling& s, double largest, Scratch& scratch) const;
  double sum_of_all(const forge_sampling& s, double largest, Scratch& scratch) const;
  void report_top(const float* logits, double normalizer, uint32_t n_top, uint32_t output,
                  ResultBlock& results, Scratch& scratch) const;

  const KernelTable& kernels_;
  uint64_t vocabulary_;
  std::vector<Scratch> scratch_;
};

}  // namespace forge::cpu
