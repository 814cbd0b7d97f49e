#include "plan_builder.h"

#include <algorithm>

namespace forge::cuda {

PlanBuilder::PlanBuilder(const Program& program, const ScratchPlan& values,
                         const PlanMemory& memory, const StepShape& shape,
                         const InputAddresses& inputs, CudaDevice& device,
                         const AttentionChoice& attention)
    : program_(program),
      values_(values),
      memory_(memory),
      shape_(shape),
      inputs_(inputs),
      device_(device),
      gpu_(device.device().properties()),
      attention_(attention) {}

LaunchPlan PlanBuilder::build() {
  for (op_index_ = 0; op_index_ < program_.ops.size(); ++op_index_) {
    scratch_used_ = 0;
    std::visit(
        [this](const auto& op) {
          // Without outputs there is nothing to do after their rows would have been gathered.
          if (op.out == 0 ? shape_.outputs > 0 : max_rows(op.out) > 0) emit(op);
        },
        program_.ops[op_index_]);
    if (!std::holds_alternative<SampleOp>(program_.ops[op_index_])) {
      plan_.sampling_begin = plan_.entries.size();
    }
  }
  return std::move(plan_);
}

DevicePointer PlanBuilder::value(ValueId id) const {
  return id == 0 ? 0 : memory_.values + values_.offsets[id - 1] * sizeof(float);
}

DevicePointer PlanBuilder::n_rows(ValueId id) const {
  return program_.value(id).rows == Rows::tokens ? inputs_.n_tokens : inputs_.n_outputs;
}

uint32_t PlanBuilder::max_rows(ValueId id) const {
  return program_.value(id).rows == Rows::tokens ? shape_.tokens : shape_.outputs;
}

DevicePointer PlanBuilder::scratch(uint64_t bytes) {
  const DevicePointer at = memory_.workspace.scratch + scratch_used_;
  scratch_used_ += (bytes + 255) / 256 * 256;
  needed_.scratch = std::max(needed_.scratch, scratch_used_);
  return at;
}

}  // namespace forge::cuda
