#include "logit_adjustment.h"

#include <algorithm>
#include <cmath>

namespace forge::cpu {

namespace {

bool penalizes(const forge_sampling& s) {
  return s.history_begin < s.history_end &&
         (s.repeat_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0);
}

double penalized(double logit, const forge_sampling& s, ptrdiff_t count) {
  logit = logit > 0 ? logit / s.repeat_penalty : logit * s.repeat_penalty;
  return logit - (s.presence_penalty +
                  static_cast<double>(count) * static_cast<double>(s.frequency_penalty));
}

}  // namespace

bool adjusts(const forge_sampling& s) {
  return penalizes(s) || s.bias_begin < s.bias_end || s.mask >= 0;
}

void find_overrides(const StepInputs& inputs, const forge_sampling& s, const float* logits,
                    std::vector<int32_t>& history, std::vector<Candidate>& overrides) {
  overrides.clear();
  if (penalizes(s)) {
    history.assign(inputs.history.begin() + s.history_begin,
                   inputs.history.begin() + s.history_end);
    std::sort(history.begin(), history.end());
    for (auto at = history.begin(); at != history.end();) {
      const auto next = std::upper_bound(at, history.end(), *at);
      overrides.push_back({*at, penalized(logits[*at], s, next - at)});
      at = next;
    }
  }
  for (uint32_t i = s.bias_begin; i < s.bias_end; ++i) {
    const int32_t id = inputs.bias_ids[i];
    auto at = std::lower_bound(overrides.begin(), overrides.end(), id,
                               [](const Candidate& c, int32_t wanted) { return c.id < wanted; });
    if (at == overrides.end() || at->id != id) at = overrides.insert(at, {id, logits[id]});
    at->logit += inputs.bias_values[i];
  }
}

void apply_mask(const uint32_t* mask, uint64_t n, float* logits) {
  for (uint64_t begin = 0; begin < n; begin += 32) {
    const uint32_t word = mask[begin / 32];
    if (word == UINT32_MAX) continue;
    const uint64_t end = std::min(n, begin + 32);
    for (uint64_t i = begin; i < end; ++i) {
      if ((word >> (i - begin) & 1) == 0) logits[i] = -INFINITY;
    }
  }
}

const uint32_t* mask_of(const StepInputs& inputs, const forge_sampling& s) {
  return s.mask < 0 ? nullptr
                    : inputs.masks.data() + static_cast<size_t>(s.mask) * inputs.mask_words;
}

}  // namespace forge::cpu
