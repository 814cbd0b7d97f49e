#include "executor.h"

#include <cstring>

namespace forge::reference {

Executor::Executor(std::shared_ptr<const Program> program)
    : program_(std::move(program)), plan_(plan_scratch(*program_, 1)), arena_(plan_.elements) {
  scratch_bytes = arena_.size() * sizeof(float);
}

Executor::Matrix Executor::matrix(ValueId id) {
  if (id == 0) return {nullptr, 0, 0};
  const Value& value = program_->value(id);
  return {arena_.data() + plan_.offsets[id - 1], inputs_->rows(value.rows), value.cols};
}

void Executor::run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) {
  inputs_ = &inputs;
  results_ = &results;
  for (const Op& op : program_->ops) {
    stop.check();
    std::visit([this](const auto& typed) { execute(typed); }, op);
  }
}

void Executor::read(uint32_t value, uint64_t first_row, uint64_t n_rows, float* out) const {
  const uint64_t cols = program_->value(value).cols;
  const float* begin = arena_.data() + plan_.offsets[value - 1] + first_row * cols;
  std::memcpy(out, begin, n_rows * cols * sizeof(float));
}

}  // namespace forge::reference
