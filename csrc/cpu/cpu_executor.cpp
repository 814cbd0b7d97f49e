#include "cpu_executor.h"

#include "value_plan.h"

namespace forge::cpu {

namespace {

// Every value begins on a cache line.
constexpr uint64_t kCacheLineFloats = 16;

}  // namespace

CpuExecutor::CpuExecutor(std::shared_ptr<const Program> program, std::shared_ptr<CpuDevice> device,
                         const RankLinks& links)
    : HostExecutor(std::move(program), {}, links),
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
    visit_op([this](const auto& op) { prepare(op); }, program_->ops[op_index_]);
  }
  scratch_bytes = arena_.bytes() + products_.scratch_bytes() + attention_.scratch_bytes();
  taken_ = device_->memory->take(scratch_bytes);
  place_weights();
  std::vector<PackedWeight*> dense = packed_;
  for (size_t i = 0; i < dense.size(); ++i) {
    if (std::holds_alternative<MoeMatmulOp>(program_->ops[i])) dense[i] = nullptr;
  }
  read_ahead_ = std::make_unique<ReadAhead>(dense);
  packing_ = std::make_unique<Packing>(packed_, *device_);
}

void CpuExecutor::place_weights() {
  MemoryBound& memory = *device_->memory;
  StreamedBytes& streamed = device_->streamed;
  // Experts, and the share of them that tokens choose.
  std::vector<std::pair<PackedWeight*, double>> experts;
  uint64_t expert_bytes = 0;
  for (size_t i = 0; i < packed_.size(); ++i) {
    PackedWeight* weight = packed_[i];
    if (!weight || weight->is_placed()) continue;
    if (const auto* op = std::get_if<MoeMatmulOp>(&program_->ops[i])) {
      const double top_k = static_cast<double>(program_->value(op->route).cols) / 2;
      experts.emplace_back(weight, top_k / op->n_experts);
      expert_bytes += weight->bytes();
      continue;
    }
    const bool fits = weight->bytes() <= memory.left();
    weight->place(fits ? weight->n_groups() : 0, memory);
    if (fits) continue;
    streamed.all += weight->file_bytes();
    streamed.per_token += weight->file_bytes();
  }
  const double share = std::min(1.0, static_cast<double>(memory.left()) /
                                         static_cast<double>(std::max<uint64_t>(1, expert_bytes)));
  for (const auto& [weight, chosen] : experts) {
    if (weight->is_placed()) continue;
    const auto n_groups = static_cast<double>(weight->n_groups());
    weight->place(static_cast<uint64_t>(share * n_groups), memory);
    const double absent =
        static_cast<double>(weight->n_groups() - weight->n_slots()) / n_groups *
        static_cast<double>(weight->file_bytes());
    streamed.all += static_cast<uint64_t>(absent);
    streamed.per_token += static_cast<uint64_t>(absent * chosen);
  }
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
