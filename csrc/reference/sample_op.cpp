// Sampling by sorting the whole vocabulary: the order of forge_sampling, step by step.

#include <algorithm>
#include <cmath>
#include <map>

#include "../common/philox.h"
#include "executor.h"

namespace forge::reference {

namespace {

struct Candidate {
  int32_t id;
  double logit;
  double probability = 0;
};

// Natural log of the sum of exp(logit).
double log_sum_exp(const float* logits, uint64_t n) {
  const double largest = *std::max_element(logits, logits + n);
  double sum = 0;
  for (uint64_t i = 0; i < n; ++i) sum += std::exp(logits[i] - largest);
  return largest + std::log(sum);
}

bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

std::vector<Candidate> adjusted(const StepInputs& in, const forge_sampling& s, const float* logits,
                                uint64_t n) {
  std::vector<double> values(logits, logits + n);
  std::map<int32_t, int> counts;
  for (uint32_t i = s.history_begin; i < s.history_end; ++i) ++counts[in.history[i]];
  for (const auto& [id, count] : counts) {
    double& value = values[static_cast<size_t>(id)];
    value = value > 0 ? value / s.repeat_penalty : value * s.repeat_penalty;
    value -= s.presence_penalty + count * static_cast<double>(s.frequency_penalty);
  }
  for (uint32_t i = s.bias_begin; i < s.bias_end; ++i) {
    values[static_cast<size_t>(in.bias_ids[i])] += in.bias_values[i];
  }
  std::vector<Candidate> candidates;
  for (uint64_t i = 0; i < n; ++i) {
    const bool allowed =
        s.mask < 0 ||
        (in.masks[static_cast<size_t>(s.mask) * in.mask_words + i / 32] >> (i % 32) & 1) != 0;
    if (allowed && values[i] != -INFINITY) {
      candidates.push_back({static_cast<int32_t>(i), values[i]});
    }
  }
  std::sort(candidates.begin(), candidates.end(), better);
  return candidates;
}

// Truncates candidates, sorted best first, by top_k, top_p and min_p.
void truncate(std::vector<Candidate>& candidates, const forge_sampling& s) {
  const double largest = candidates.front().logit;
  if (s.top_k > 0 && candidates.size() > s.top_k) candidates.resize(s.top_k);
  double total = 0;
  for (Candidate& c : candidates) {
    total += c.probability = std::exp((c.logit - largest) / s.temperature);
  }
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
int32_t draw(std::vector<Candidate> candidates, const forge_sampling& s) {
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

}  // namespace

void Executor::execute(const SampleOp& op) {
  const Matrix logits = matrix(op.logits);
  inputs_->masks_ready.wait();
  for (uint32_t o = 0; o < logits.rows; ++o) {
    const float* row = logits.row(o);
    const forge_sampling& s = inputs_->sampling[o];
    forge_result& result = results_->header(o);
    result = {-1, 0, 0.0f, 0};
    if (!std::all_of(row, row + logits.cols, [](float x) { return x < INFINITY; })) {
      result.flags = FORGE_LOGITS_NAN;
      continue;
    }
    std::vector<Candidate> candidates = adjusted(*inputs_, s, row, logits.cols);
    if (s.forced_token >= 0) {
      result.token = s.forced_token;
    } else if (candidates.empty()) {
      result.flags = FORGE_NOTHING_ALLOWED;
    } else if (s.temperature == 0) {
      result.token = candidates.front().id;
    } else {
      truncate(candidates, s);
      result.token = draw(std::move(candidates), s);
    }
    const double normalizer = log_sum_exp(row, logits.cols);
    if (result.token >= 0) {
      result.logprob = static_cast<float>(row[result.token] - normalizer);
    }
    std::vector<Candidate> all;
    for (uint64_t i = 0; i < logits.cols && s.n_top > 0; ++i) {
      all.push_back({static_cast<int32_t>(i), row[i]});
    }
    std::sort(all.begin(), all.end(), better);
    result.n_top = s.n_top;
    for (uint32_t i = 0; i < s.n_top; ++i) {
      results_->top_ids(o)[i] = all[i].id;
      results_->top_logprobs(o)[i] = static_cast<float>(all[i].logit - normalizer);
    }
  }
}

}  // namespace forge::reference
