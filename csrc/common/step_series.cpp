#include "step_series.h"

#include <algorithm>

#include "error.h"
#include "run_profile.h"

namespace forge {

namespace {

// The inputs of the next step: those of the first one, advanced by the tokens chosen since.
class NextInputs {
 public:
  explicit NextInputs(const StepInputs& first)
      : inputs_(first),
        tokens_(first.tokens.begin(), first.tokens.end()),
        positions_(first.positions.begin(), first.positions.end()),
        sampling_(first.sampling.begin(), first.sampling.end()),
        histories_(first.n_outputs) {
    for (uint32_t output = 0; output < first.n_outputs; ++output) {
      const forge_sampling& s = sampling_[output];
      const auto begin = first.history.begin();
      histories_[output].assign(begin + s.history_begin, begin + s.history_end);
    }
    inputs_.tokens = tokens_;
    inputs_.positions = positions_;
    inputs_.sampling = sampling_;
  }
  // The inputs are views of the members.
  NextInputs(const NextInputs&) = delete;
  NextInputs& operator=(const NextInputs&) = delete;

  const StepInputs& get() const { return inputs_; }

  void advance(const Program& program, const ResultBlock& results) {
    history_.clear();
    for (uint32_t i = 0; i < inputs_.n_tokens; ++i) {
      const int32_t token = results.header(i).token;
      require(program.vocabulary == 0 || static_cast<uint64_t>(token) < program.vocabulary,
              "step inputs: token ", token, " was chosen; valid is 0 to ",
              static_cast<int64_t>(program.vocabulary) - 1);
      tokens_[i] = token;
      ++positions_[i];
      ++sampling_[i].position;
      keep_history(i, token);
    }
    inputs_.history = history_;
  }

 private:
  void keep_history(uint32_t output, int32_t token) {
    std::vector<int32_t>& history = histories_[output];
    history.push_back(token);
    const size_t most = inputs_.history_sizes[output];
    if (history.size() > most) {
      history.erase(history.begin(), history.end() - static_cast<ptrdiff_t>(most));
    }
    forge_sampling& s = sampling_[output];
    s.history_begin = static_cast<uint32_t>(history_.size());
    history_.insert(history_.end(), history.begin(), history.end());
    s.history_end = static_cast<uint32_t>(history_.size());
  }

  StepInputs inputs_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> positions_;
  std::vector<forge_sampling> sampling_;
  std::vector<std::vector<int32_t>> histories_;
  std::vector<int32_t> history_;
};

// True if all outputs of a step chose a token, and none chose an end token.
bool continues(const StepInputs& inputs, const ResultBlock& results) {
  for (uint32_t output = 0; output < inputs.n_outputs; ++output) {
    const forge_result& result = results.header(output);
    if (result.flags != 0) return false;
    if (std::ranges::find(inputs.end_tokens, result.token) != inputs.end_tokens.end()) return false;
  }
  return true;
}

}  // namespace

void run_series(Executable& executable, const Program& program, const StepInputs& inputs,
                const ResultBlock& results, const StopFlag& stop) {
  ResultBlock of_step = results;
  const auto run = [&](const StepInputs& of, ResultBlock& into) {
    executable.run(of, into, stop);
    if (executable.profile) executable.profile->end_step(program, of);
  };
  run(inputs, of_step);
  if (inputs.n_steps == 1) return;
  NextInputs next(inputs);
  const uint64_t n_results = uint64_t{inputs.n_steps} * inputs.n_outputs;
  uint64_t first = inputs.n_outputs;
  for (; first < n_results && continues(inputs, of_step); first += inputs.n_outputs) {
    next.advance(program, of_step);
    of_step = results.from(first);
    run(next.get(), of_step);
  }
  for (uint64_t i = first; i < n_results; ++i) {
    results.header(i) = {.token = -1, .flags = FORGE_NOT_RUN, .logprob = 0, .n_top = 0};
  }
}

}  // namespace forge
