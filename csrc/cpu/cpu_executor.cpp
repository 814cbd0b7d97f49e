#include "cpu_executor.h"

#include "value_plan.h"

namespace forge::cpu {

namespace {

// Every value begins on a cache line.
constexpr uint64_t kCacheLineFloats = 16;

}  // namespace

CpuExecutor::CpuExecutor(std::shared_ptr<const Program> program, std::shared_ptr<CpuDevice> device)
    : HostExecutor(std::move(program), {}),
      device_(std::move(device)),
      kernels_(device_->kernels),
      gated_units_(find_gated_units(*program_)),
      is_blocks_(find_block_values(*program_)),
      products_(*device_),
      attention_(*device_),
      sampling_(kernels_, device_->pool.n_threads(), program_->logits_cols),
      packed_(program_->ops.size()),
      rows_(device_->pool.n_threads()),
      taps_(program_->ops.size()),
      delta_tokens_(device_->pool.n_threads()) {
  plan_ = plan_arena(*program_, gated_units_, is_blocks_, kCacheLineFloats);
  arena_ = Memory(plan_.elements * sizeof(float));
  values_ = arena_.floats();
  const auto lock = device_->lock();
  for (op_index_ = 0; op_index_ < program_->ops.size(); ++op_index_) {
    std::visit([this](const auto& op) { prepare(op); }, program_->ops[op_index_]);
  }
  packing_ = std::make_unique<Packing>(packed_, *device_);
  scratch_bytes = arena_.bytes() + products_.scratch_bytes() + attention_.scratch_bytes();
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
  op_index_ = 0;
  run_operations(inputs, results, stop, [this](const auto& op) {
    execute(op);
    ++op_index_;
  });
}

}  // namespace forge::cpu
