// Products with dense weights.

#include "../cpu_executor.h"

namespace forge::cpu {

void CpuExecutor::prepare_product(const Weight& weight, uint64_t group_rows, ValueId x) {
  PackedWeight& packed = static_cast<const CpuWeight&>(weight).packed(group_rows);
  packed_[op_index_] = &packed;
  if (!packed.quantized() || is_blocks_[x - 1]) return;
  products_.reserve(program_->max_rows(x), program_->value(x).cols);
}

const ActivationBlock* CpuExecutor::quantized(const PackedWeight& weight, ValueId x) {
  if (const ActivationBlock* blocks = blocks_of(x)) return blocks;
  const Matrix rows = matrix(x);
  return products_.quantize(weight, rows.data, rows.rows, rows.cols);
}

void CpuExecutor::prepare(const MatmulOp& op) {
  floats_of(op.bias);
  prepare_product(*op.weight, op.weight->rows, op.x);
  if (gated_units_[op_index_]) products_.reserve_gated();
}

void CpuExecutor::execute(const MatmulOp& op) {
  const GluOp* unit = gated_units_[op_index_];
  const Matrix x = matrix(op.x), residual = matrix(op.residual),
               out = matrix(unit ? unit->out : op.out);
  const PackedWeight& weight = *packed_[op_index_];
  read_ahead_->reach(op_index_);
  const ActivationBlock* blocks = quantized(weight, op.x);
  tokens_.clear();
  for (uint64_t t = 0; t < x.rows; ++t) {
    tokens_.push_back({x.row(t), blocks_at(blocks, t, x.cols), out.row(t), residual.row(t)});
  }
  if (unit) {
    return products_.run_gated(weight, tokens_, {unit->width, unit->unit, blocks_of(unit->out)},
                               *stop_);
  }
  groups_.assign(1, {0, tokens_.data(), tokens_.size()});
  products_.run(weight, groups_, {floats_of(op.bias), op.alpha, op.activation}, *stop_);
}

void CpuExecutor::prepare(const HeadMatmulOp& op) {
  prepare_product(*op.weight, op.weight->rows / op.n_heads, op.x);
}

void CpuExecutor::execute(const HeadMatmulOp& op) {
  read_ahead_->reach(op_index_);
  const Matrix x = matrix(op.x), out = matrix(op.out);
  const uint64_t cols = op.weight->cols, head_rows = op.weight->rows / op.n_heads;
  const PackedWeight& weight = *packed_[op_index_];
  const ActivationBlock* blocks = quantized(weight, op.x);
  tokens_.clear();
  for (uint64_t head = 0; head < op.n_heads; ++head) {
    for (uint64_t t = 0; t < x.rows; ++t) {
      tokens_.push_back({x.row(t) + head * cols, blocks_at(blocks, t * op.n_heads + head, cols),
                         out.row(t) + head * head_rows, nullptr});
    }
  }
  groups_.clear();
  for (uint64_t head = 0; head < op.n_heads; ++head) {
    groups_.push_back({head, tokens_.data() + head * x.rows, x.rows});
  }
  products_.run(weight, groups_, {}, *stop_);
}

}  // namespace forge::cpu
