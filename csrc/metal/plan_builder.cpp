#include "plan_builder.h"

#include <algorithm>

namespace forge::metal {

PlanBuilder::PlanBuilder(const Program& program, const ScratchPlan& values,
                         const PlanMemory& memory, const PlanShape& shape,
                         const InputPlaces& inputs, Kernels& kernels)
    : program_(program),
      values_(values),
      memory_(memory),
      shape_(shape.step),
      greedy_(shape.greedy),
      inputs_(inputs),
      kernels_(kernels) {}

LaunchPlan PlanBuilder::build() {
  for (op_index_ = 0; op_index_ < program_.ops.size(); ++op_index_) {
    scratch_used_ = 0;
    const bool is_sampling = std::holds_alternative<SampleOp>(program_.ops[op_index_]);
    std::visit(
        [this](const auto& op) {
          // Without outputs there is nothing to do after their rows would have been gathered.
          if (op.out == 0 ? shape_.outputs > 0 : max_rows(op.out) > 0) emit(op);
        },
        program_.ops[op_index_]);
    if (!is_sampling) plan_.sampling_begin = plan_.launches.size();
  }
  return std::move(plan_);
}

Place PlanBuilder::value(ValueId id) const {
  return id == 0 ? Place{} : memory_.values + values_.offsets[id - 1] * sizeof(float);
}

Place PlanBuilder::n_rows(ValueId id) const {
  return program_.value(id).rows == Rows::tokens ? inputs_.n_tokens : inputs_.n_outputs;
}

uint32_t PlanBuilder::max_rows(ValueId id) const {
  return program_.value(id).rows == Rows::tokens ? shape_.tokens : shape_.outputs;
}

Place PlanBuilder::scratch(uint64_t bytes) {
  const Place at = memory_.workspace.scratch + scratch_used_;
  scratch_used_ += (bytes + 255) / 256 * 256;
  needed_.scratch = std::max(needed_.scratch, scratch_used_);
  return at;
}

}  // namespace forge::metal
