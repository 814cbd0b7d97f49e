#pragma once

#include <cstdint>
#include <vector>

#include "../../common/step_inputs.h"
#include "../kernel_table.h"

namespace forge::cpu {

struct Candidate {
  int32_t id;
  double logit;
  double probability = 0;  // relative to the best candidate, once known
};

// Chooses tokens as forge_sampling describes, without sorting the vocabulary: passes over the
// logits are vectorised, and only the few tokens that can be chosen are handled one by one. Sums
// that decide a choice are in double.
class Sampling {
 public:
  Sampling(const KernelTable& kernels, uint32_t n_threads, uint64_t vocabulary);

  // Fills in result `output` from its logits. Calls from several threads may overlap if each passes
  // its own thread number.
  void choose(const StepInputs& inputs, uint32_t output, const float* logits, ResultBlock& results,
              uint32_t thread);

 private:
  // Working memory of one thread, overwritten for each output.
  struct Scratch {
    // The logits to choose from: those of the model, or `adjusted`, which is -infinity for tokens
    // that a mask forbids and for those whose changed logit is in `overrides`.
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
  // Returns the token, or -1 if no token is allowed.
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
