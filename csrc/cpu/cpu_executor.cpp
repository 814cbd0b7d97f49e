#include "cpu_executor.h"

#include <cstring>

#include "arena_plan.h"
#include "block_values.h"
#include "gated_units.h"

namespace forge::cpu {

namespace {

// Every value begins on a cache line.
constexpr uint64_t kCacheLineFloats = 16;

}  // namespace

CpuExecutor::CpuExecutor(std::shared_ptr<const Program> program, std::shared_ptr<CpuDevice> device)
    : program_(std::move(program)),
      device_(std::move(device)),
      kernels_(device_->kernels),
      gated_units_(find_gated_units(*program_)),
      is_blocks_(find_block_values(*program_)),
      plan_(plan_arena(*program_, gated_units_, is_blocks_, kCacheLineFloats)),
      arena_(plan_.elements * sizeof(float)),
      products_(*device_),
      attention_(*device_),
      sampling_(kernels_, device_->pool.n_threads(), program_->logits_cols),
      packed_(program_->ops.size()),
      rows_(device_->pool.n_threads()),
      taps_(program_->ops.size()),
      delta_tokens_(device_->pool.n_threads()) {
  const auto lock = device_->lock();
  for (op_index_ = 0; op_index_ < program_->ops.size(); ++op_index_) {
    std::visit([this](const auto& op) { prepare(op); }, program_->ops[op_index_]);
  }
  packing_ = std::make_unique<Packing>(packed_, *device_);
  scratch_bytes = arena_.bytes() + products_.scratch_bytes() + attention_.scratch_bytes();
}

CpuExecutor::Matrix CpuExecutor::matrix(ValueId id) const {
  if (id == 0) return {nullptr, 0, 0};
  const Value& value = program_->value(id);
  return {arena_.floats() + plan_.offsets[id - 1], inputs_->rows(value.rows), value.cols};
}

ActivationBlock* CpuExecutor::blocks_of(ValueId id) const {
  return is_blocks_[id - 1] ? reinterpret_cast<ActivationBlock*>(matrix(id).data) : nullptr;
}

void CpuExecutor::reserve_row(uint64_t cols) {
  for (std::vector<float>& row : rows_) row.resize(std::max<uint64_t>(row.size(), cols));
}

void CpuExecutor::run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) {
  const auto lock = device_->lock();
  packing_->prepare_run(stop);
  inputs_ = &inputs;
  results_ = &results;
  stop_ = &stop;
  for (op_index_ = 0; op_index_ < program_->ops.size(); ++op_index_) {
    stop.check();
    std::visit([this](const auto& op) { execute(op); }, program_->ops[op_index_]);
  }
}

void CpuExecutor::read(uint32_t value, uint64_t first_row, uint64_t n_rows, float* out) const {
  const uint64_t cols = program_->value(value).cols;
  const float* begin = arena_.floats() + plan_.offsets[value - 1] + first_row * cols;
  std::memcpy(out, begin, n_rows * cols * sizeof(float));
}

}  // namespace forge::cpu
