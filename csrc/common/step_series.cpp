#include "step_series.h"

#include <algorithm>

#include "error.h"
#include "run_profile.h"

namespace forge {

SeriesInputs::SeriesInputs(const StepInputs& first)
    : first_(first),
      inputs_(first),
      tokens_(first.tokens.begin(), first.tokens.end()),
      positions_(first.positions.begin(), first.positions.end()),
      sampling_(first.sampling.begin(), first.sampling.end()) {
  for (const forge_sampling& s : first.sampling) {
    const auto begin = static_cast<uint32_t>(history_.size());
    const auto from = first.history.begin();
    history_.insert(history_.end(), from + s.history_begin, from + s.history_end);
    histories_.push_back({begin, static_cast<uint32_t>(history_.size())});
    history_.resize(history_.size() + first.n_steps - 1);
  }
  inputs_.tokens = tokens_;
  inputs_.positions = positions_;
  inputs_.sampling = sampling_;
  inputs_.history = history_;
}

const StepInputs& SeriesInputs::at(uint32_t step) {
  for (uint32_t i = 0; i < first_.n_outputs; ++i) {
    positions_[i] = first_.positions[i] + static_cast<int32_t>(step);
    forge_sampling& s = sampling_[i];
    s.position = first_.sampling[i].position + step;
    s.history_begin = histories_[i].begin;
    s.history_end = history_end(i, step);
    const uint32_t most = first_.history_sizes[i];
    if (step > 0 && s.history_end - s.history_begin > most) s.history_begin = s.history_end - most;
  }
  return inputs_;
}

void SeriesInputs::choose(uint32_t step, const Program& program, const ResultBlock& previous) {
  for (uint32_t i = 0; i < first_.n_outputs; ++i) {
    const int32_t token = previous.header(i).token;
    require(program.vocabulary == 0 || static_cast<uint64_t>(token) < program.vocabulary,
            "step inputs: token ", token, " was chosen; valid is 0 to ",
            static_cast<int64_t>(program.vocabulary) - 1);
    tokens_[i] = token;
    history_[history_end(i, step) - 1] = token;
  }
}

namespace {

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
  const auto run = [&](const StepInputs& of) {
    executable.run(of, of_step, stop);
    if (executable.profile) executable.profile->end_step(program, of);
  };
  if (inputs.n_steps == 1) return run(inputs);
  SeriesInputs series(inputs);
  // Profiles need the times of each step.
  const bool is_run = !executable.profile && executable.run_ahead(series, of_step, stop);
  if (!is_run) run(inputs);
  uint32_t step = 1;
  for (; step < inputs.n_steps && continues(inputs, of_step); ++step) {
    series.choose(step, program, of_step);
    of_step = results.from(uint64_t{step} * inputs.n_outputs);
    if (!is_run) run(series.at(step));
  }
  for (uint64_t i = uint64_t{step} * inputs.n_outputs;
       i < uint64_t{inputs.n_steps} * inputs.n_outputs; ++i) {
    results.header(i) = {.token = -1, .flags = FORGE_NOT_RUN, .logprob = 0, .n_top = 0};
  }
}

}  // namespace forge
