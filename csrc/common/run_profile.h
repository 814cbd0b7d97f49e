#pragma once

// Times of the operations of a run, for `forge run --profile`.

#include <chrono>
#include <string>
#include <vector>

#include "program.h"
#include "step_inputs.h"

namespace forge {

// The least work that an operation's formula asks for.
struct OperationWork {
  uint64_t bytes = 0;  // weights, cached keys and values, inputs and results, each once
  uint64_t flops = 0;  // two for a multiplication and an addition
};

// Returns the work of one operation in a step with these inputs. Chosen experts count as different
// ones, up to all of them.
OperationWork work_of(const Program& program, const Op& op, const StepInputs& inputs);

// Returns the shape and type of the matrix that an operation multiplies with, as in
// "4096 x 14336 Q4_0"; empty without one.
std::string matrix_of(const Op& op);

// A measured piece of a run. An operation that another one computed has none.
struct Span {
  uint32_t step;  // of the run, from 0
  uint32_t operation;
  std::string kernel;  // on a GPU
  uint64_t begin;      // nanoseconds from the start of the run, like the duration
  uint64_t duration;
  OperationWork work{};  // zero for all but the first kernel of an operation
};

// The spans of the last run of a step.
class RunProfile {
 public:
  using Clock = std::chrono::steady_clock;

  // Forgets the former run.
  void begin_run() {
    spans_.clear();
    step_ = 0;
    start_ = Clock::now();
  }
  uint64_t now() const {
    return static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - start_).count());
  }
  void add(size_t operation, uint64_t begin, uint64_t duration, std::string kernel = {}) {
    spans_.push_back({step_, static_cast<uint32_t>(operation), std::move(kernel), begin, duration});
  }
  // Completes the spans of a step.
  void end_step(const Program& program, const StepInputs& inputs);
  // JSON: see forge_step_profile.
  std::string json(const Program& program) const;

 private:
  std::vector<Span> spans_;
  uint32_t step_ = 0;
  Clock::time_point start_;
};

}  // namespace forge
