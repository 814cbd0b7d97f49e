#pragma once

#include <cstring>
#include <memory>

#include "backend.h"
#include "program.h"
#include "rank_group.h"
#include "run_profile.h"
#include "scratch_plan.h"
#include "step_inputs.h"

namespace forge {

// The base of executors whose values are in host memory: one arena, divided by a plan.
class HostExecutor : public Executable {
 public:
  void read(uint32_t value, uint64_t first_row, uint64_t n_rows, float* out) const override {
    const uint64_t cols = program_->value(value).cols;
    std::memcpy(out, values_ + plan_.offsets[value - 1] + first_row * cols,
                n_rows * cols * sizeof(float));
  }

 protected:
  HostExecutor(std::shared_ptr<const Program> program, ScratchPlan plan, RankLinks links)
      : program_(std::move(program)), plan_(std::move(plan)), links_(std::move(links)) {}

  // A value during a run: a row-major matrix of the arena. `data` is null for value 0.
  struct Matrix {
    float* data;
    uint64_t rows;
    uint64_t cols;
    float* row(uint64_t i) const { return data ? data + i * cols : nullptr; }
  };
  Matrix matrix(ValueId id) const {
    if (id == 0) return {nullptr, 0, 0};
    const Value& value = program_->value(id);
    return {values_ + plan_.offsets[id - 1], inputs_->rows(value.rows), value.cols};
  }

  // Calls execute(op) for each operation in order. Throws FORGE_CANCELLED once the flag is raised.
  template <class Execute>
  void run_operations(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop,
                      Execute&& execute) {
    inputs_ = &inputs;
    results_ = &results;
    stop_ = &stop;
    for (size_t i = 0; i < program_->ops.size(); ++i) {
      stop.check();
      const uint64_t begin = profile ? profile->now() : 0;
      visit_op(execute, program_->ops[i]);
      if (profile) profile->add(i, begin, profile->now() - begin);
    }
  }

  void exchange(const AllReduceOp& op) {
    const Matrix in = matrix(op.x);
    links_.stage->sum(links_.place.rank, in.data, matrix(op.out).data, in.rows * in.cols, *stop_);
  }
  void exchange(const SendOp& op) {
    const Matrix in = matrix(op.x);
    links_.next->send(in.data, in.rows * in.cols, *stop_);
  }
  void exchange(const ReceiveOp& op) {
    const Matrix out = matrix(op.out);
    links_.previous->receive(out.data, out.rows * out.cols, *stop_);
  }

  std::shared_ptr<const Program> program_;
  ScratchPlan plan_;
  const RankLinks links_;
  float* values_ = nullptr;  // the arena, plan_.elements floats owned by the derived class

  // Of the current run.
  const StepInputs* inputs_ = nullptr;
  ResultBlock* results_ = nullptr;
  const StopFlag* stop_ = nullptr;
};

}  // namespace forge
