#pragma once

#include <vector>

#include "backend.h"
#include "step_inputs.h"

namespace forge {

// The inputs of the steps of a series: see forge_step_header in forge.h. Everything but the tokens
// that the steps choose is known from the start.
class SeriesInputs {
 public:
  // The views of `first` must stay valid.
  explicit SeriesInputs(const StepInputs& first);
  // The inputs that at() returns are views of the members.
  SeriesInputs(const SeriesInputs&) = delete;
  SeriesInputs& operator=(const SeriesInputs&) = delete;

  uint32_t n_steps() const { return first_.n_steps; }
  // Returns the inputs of a step, until the next call. Its tokens are those that were set last; of
  // the history, the tokens of steps that have not run are undefined.
  const StepInputs& at(uint32_t step);
  // Sets the tokens of a step after the first to those that the previous one chose, and adds them
  // to the history.
  void choose(uint32_t step, const Program& program, const ResultBlock& previous);

 private:
  // The history of an output in history_, with room for the tokens of all steps.
  struct History {
    uint32_t begin, end;  // of the first step
  };
  // The entry after the last one of a step's history.
  uint32_t history_end(uint32_t output, uint32_t step) const {
    return histories_[output].end + step;
  }

  const StepInputs& first_;
  StepInputs inputs_;
  std::vector<int32_t> tokens_, positions_, history_;
  std::vector<forge_sampling> sampling_;
  std::vector<History> histories_;
};

// Runs a step inputs.n_steps times with one call, each time on the tokens chosen by the previous
// step. The results of steps that do not run have FORGE_NOT_RUN.
void run_series(Executable& executable, const Program& program, const StepInputs& inputs,
                const ResultBlock& results, const StopFlag& stop);

}  // namespace forge
