#include "sampling.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "../../common/philox.h"

namespace forge::cpu {

namespace {

// Orders candidates: the larger logit first, the lower id on ties.
bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Drops all but the best k candidates, and leaves the worst of these last; the others are
// unordered.
void keep_best(std::vector<Candidate>& candidates, uint64_t k) {
  if (candidates.size() <= k) return;
  const auto worst = candidates.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(candidates.begin(), worst, candidates.end(), better);
  candidates.resize(k);
}

bool penalizes(const forge_sampling& s) {
  return s.history_begin < s.history_end &&
         (s.repeat_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0);
}

double penalized(double logit, const forge_sampling& s, ptrdiff_t count) {
  logit = logit > 0 ? logit / s.repeat_penalty : logit * s.repeat_penalty;
  return logit - (s.presence_penalty +
                  static_cast<double>(count) * static_cast<double>(s.frequency_penalty));
}

double probability_of(double logit, double largest, const forge_sampling& s) {
  return std::exp((logit - largest) / s.temperature);
}

// 1 / temperature as a finite float.
float inverse_temperature(const forge_sampling& s) {
  return static_cast<float>(std::min<double>(1.0 / s.temperature, FLT_MAX));
}

// Returns a logit just below those whose probability relative to the largest is `share`.
float threshold_for(double share, double largest, const forge_sampling& s) {
  const double logit = largest + std::log(share) * s.temperature;
  return std::nextafter(static_cast<float>(logit - 1e-6 * std::abs(logit)), -INFINITY);
}

// Truncates candidates, sorted best first, by top_p and min_p; `total` is the sum of the
// probabilities of all candidates that top_k left.
void truncate(std::vector<Candidate>& candidates, const forge_sampling& s, double total) {
  if (s.top_p < 1) {
    double cumulative = 0;
    size_t kept = 0;
    while (kept < candidates.size() && (kept == 0 || cumulative < s.top_p * total)) {
      cumulative += candidates[kept++].probability;
    }
    candidates.resize(kept);
  }
  if (s.min_p > 0) {
    // The most probable candidate has probability 1 before normalisation.
    std::erase_if(candidates, [&](const Candidate& c) { return c.probability < s.min_p; });
  }
}

// Draws by walking the candidates by id, so that the order of equal probabilities does not matter.
int32_t draw(std::vector<Candidate>& candidates, const forge_sampling& s) {
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  double total = 0;
  for (const Candidate& c : candidates) total += c.probability;
  const double target = total * philox_uniform(s);
  double cumulative = 0;
  for (const Candidate& c : candidates) {
    cumulative += c.probability;
    if (cumulative > target) return c.id;
  }
  return candidates.back().id;
}

// Leaves in `out` the best k candidates of those in it and of logits[n], best first. Logits of
// -infinity are not candidates. Takes one pass for any k.
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
      // From here on a logit must reach the worst of the k. An equal one may still win, by its id,
      // over a candidate that was in `out` before the call.
      threshold = std::nextafter(static_cast<float>(out[k - 1].logit), -INFINITY);
    }
  }
  keep_best(out, k);
  std::sort(out.begin(), out.end(), better);
}

// Appends the logits above a threshold, in the order of ids.
void append_above(const KernelTable& kernels, const float* logits, uint64_t n, float threshold,
                  std::vector<Candidate>& out) {
  for (uint64_t i = kernels.find_above(logits, 0, n, threshold); i < n;
       i = kernels.find_above(logits, i + 1, n, threshold)) {
    out.push_back({static_cast<int32_t>(i), logits[i]});
  }
}

// True if penalties, bias or a mask change the logits.
bool adjusts(const forge_sampling& s) {
  return penalizes(s) || s.bias_begin < s.bias_end || s.mask >= 0;
}

// Finds the tokens whose logit penalties or bias change: their changed logits, sorted by id.
// `history` is scratch.
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

// Sets the logits that the mask forbids to -infinity.
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

bool is_allowed(const uint32_t* mask, int32_t id) {
  return !mask || (mask[id / 32] >> (id % 32) & 1) != 0;
}

// Returns the mask of a sampling, or null.
const uint32_t* mask_of(const StepInputs& inputs, const forge_sampling& s) {
  return s.mask < 0 ? nullptr
                    : inputs.masks.data() + static_cast<size_t>(s.mask) * inputs.mask_words;
}

}  // namespace

Sampling::Sampling(const KernelTable& kernels, uint32_t n_threads, uint64_t vocabulary)
    : kernels_(kernels), vocabulary_(vocabulary), scratch_(n_threads) {}

void Sampling::choose(const StepInputs& inputs, uint32_t output, const float* logits,
                      ResultBlock& results, uint32_t thread) {
  const forge_sampling& s = inputs.sampling[output];
  forge_result& result = results.header(output);
  result = {-1, 0, 0.0f, 0};
  const LogitScan found = kernels_.scan(logits, vocabulary_);
  if (found.has_nan) {
    result.flags = FORGE_LOGITS_NAN;
    return;
  }
  Scratch& scratch = scratch_[thread];
  if (s.forced_token >= 0) {
    result.token = s.forced_token;
  } else {
    adjust(inputs, s, logits, scratch);
    result.token = choose_token(s, scratch);
    if (result.token < 0) result.flags = FORGE_NOTHING_ALLOWED;
  }
  const double sum = kernels_.sum_exp(logits, vocabulary_, found.largest, 1.0f, nullptr, nullptr);
  const double normalizer = found.largest + std::log(sum);
  if (result.token >= 0) result.logprob = static_cast<float>(logits[result.token] - normalizer);
  result.n_top = s.n_top;
  report_top(logits, normalizer, s.n_top, output, results, scratch);
}

void Sampling::adjust(const StepInputs& inputs, const forge_sampling& s, const float* logits,
                      Scratch& scratch) const {
  scratch.logits = logits;
  scratch.overrides.clear();
  if (!adjusts(s)) return;
  find_overrides(inputs, s, logits, scratch.history, scratch.overrides);
  scratch.adjusted.assign(logits, logits + vocabulary_);
  scratch.logits = scratch.adjusted.data();
  for (const Candidate& c : scratch.overrides) scratch.adjusted[c.id] = -INFINITY;
  const uint32_t* mask = mask_of(inputs, s);
  if (mask) apply_mask(mask, vocabulary_, scratch.adjusted.data());
  // The comparison also drops NaN, the sum of opposite infinities.
  std::erase_if(scratch.overrides, [&](const Candidate& c) {
    return !is_allowed(mask, c.id) || !(c.logit > -INFINITY);
  });
}

Candidate Sampling::best(const Scratch& scratch) const {
  const float largest = kernels_.scan(scratch.logits, vocabulary_).largest;
  Candidate best = {-1, -INFINITY};
  if (largest > -INFINITY) {
    const float below = std::nextafter(largest, -INFINITY);
    const uint64_t id = kernels_.find_above(scratch.logits, 0, vocabulary_, below);
    best = {static_cast<int32_t>(id), largest};
  }
  for (const Candidate& c : scratch.overrides) {
    if (best.id < 0 || better(c, best)) best = c;
  }
  return best;
}

int32_t Sampling::choose_token(const forge_sampling& s, Scratch& scratch) const {
  const Candidate top = best(scratch);
  if (top.id < 0 || s.temperature == 0) return top.id;
  if (s.top_k == 0 && s.top_p == 1 && s.min_p == 0) return draw_from_all(s, top.logit, scratch);
  collect_candidates(s, top.logit, scratch);
  return draw(scratch.candidates, s);
}

double Sampling::sum_of_all(const forge_sampling& s, double largest, Scratch& scratch) const {
  scratch.terms.resize(vocabulary_);
  scratch.block_sums.resize((vocabulary_ + kSumBlock - 1) / kSumBlock);
  double total =
      kernels_.sum_exp(scratch.logits, vocabulary_, static_cast<float>(largest),
                       inverse_temperature(s), scratch.terms.data(), scratch.block_sums.data());
  for (const Candidate& c : scratch.overrides) {
    const double probability = probability_of(c.logit, largest, s);
    scratch.terms[c.id] = static_cast<float>(probability);
    scratch.block_sums[static_cast<size_t>(c.id) / kSumBlock] += probability;
    total += probability;
  }
  return total;
}

int32_t Sampling::draw_from_all(const forge_sampling& s, double largest, Scratch& scratch) const {
  const double target = sum_of_all(s, largest, scratch) * philox_uniform(s);
  double cumulative = 0;
  size_t block = 0;
  while (block + 1 < scratch.block_sums.size() &&
         cumulative + scratch.block_sums[block] <= target) {
    cumulative += scratch.block_sums[block++];
  }
  // The sum of a block and the running sum of its terms may differ in the last bits: if the terms
  // do not reach the target, the last token with a probability is drawn.
  uint64_t last = 0;
  for (uint64_t i = block * kSumBlock; i < vocabulary_; ++i) {
    if (scratch.terms[i] == 0) continue;
    last = i;
    cumulative += scratch.terms[i];
    if (cumulative > target) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(last);
}

void Sampling::collect_candidates(const forge_sampling& s, double largest,
                                  Scratch& scratch) const {
  std::vector<Candidate>& candidates = scratch.candidates;
  const auto collect_above = [&](float threshold) {
    candidates.clear();
    for (const Candidate& c : scratch.overrides) {
      if (c.logit > threshold) candidates.push_back(c);
    }
    append_above(kernels_, scratch.logits, vocabulary_, threshold, candidates);
    double sum = 0;
    for (Candidate& c : candidates) sum += c.probability = probability_of(c.logit, largest, s);
    return sum;
  };

  double total = 0;
  if (s.top_k > 0) {
    candidates = scratch.overrides;
    select_top(kernels_, scratch.logits, vocabulary_, s.top_k, candidates);
    for (Candidate& c : candidates) total += c.probability = probability_of(c.logit, largest, s);
  } else if (s.top_p < 1) {
    // Collects only as much of the tail as top_p reaches: usually a few hundred tokens.
    total = sum_of_all(s, largest, scratch);
    double reached = 0;
    for (const double share : {1e-2, 1e-4, 1e-6}) {
      reached = collect_above(threshold_for(share, largest, s));
      if (reached > s.top_p * total) break;
    }
    if (!(reached > s.top_p * total)) total = collect_above(-INFINITY);
  } else {
    collect_above(threshold_for(s.min_p, largest, s));
  }
  std::sort(candidates.begin(), candidates.end(), better);
  truncate(candidates, s, total);
}

void Sampling::report_top(const float* logits, double normalizer, uint32_t n_top, uint32_t output,
                          ResultBlock& results, Scratch& scratch) const {
  std::vector<Candidate>& top = scratch.candidates;
  top.clear();
  select_top(kernels_, logits, vocabulary_, n_top, top);
  // Fills the remaining places with tokens of probability 0, by id.
  for (uint64_t i = 0; top.size() < n_top; ++i) {
    if (logits[i] == -INFINITY) top.push_back({static_cast<int32_t>(i), logits[i]});
  }
  for (uint32_t i = 0; i < n_top; ++i) {
    results.top_ids(output)[i] = top[i].id;
    results.top_logprobs(output)[i] = static_cast<float>(top[i].logit - normalizer);
  }
}

}  // namespace forge::cpu
