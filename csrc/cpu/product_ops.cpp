// Products with weights, and the mixture of experts.

#include <algorithm>
#include <cstring>

#include "cpu_executor.h"

namespace forge::cpu {

namespace {

// The blocks of the row-th `cols` activations, or null.
const ActivationBlock* blocks_at(const ActivationBlock* all, uint64_t row, uint64_t cols) {
  return all ? all + row * (cols / kBlockCols) : nullptr;
}

}  // namespace

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

void CpuExecutor::prepare(const MoeMatmulOp& op) {
  floats_of(op.bias);
  prepare_product(*op.weight, op.weight->rows / op.n_experts, op.x);
}

void CpuExecutor::execute(const MoeMatmulOp& op) {
  const Matrix x = matrix(op.x), route = matrix(op.route), out = matrix(op.out);
  const uint64_t top_k = route.cols / 2;
  const uint64_t cols = op.weight->cols, expert_rows = op.weight->rows / op.n_experts;
  const bool shared_input = x.cols == cols;

  // The tokens, sorted by expert: each weight is then read once for all tokens that chose it.
  groups_.assign(op.n_experts, {0, nullptr, 0});
  for (uint64_t t = 0; t < route.rows; ++t) {
    for (uint64_t k = 0; k < top_k; ++k) ++groups_[static_cast<size_t>(route.row(t)[k])].n_tokens;
  }
  tokens_.resize(route.rows * top_k);
  const MatmulToken* first = tokens_.data();
  for (uint64_t expert = 0; expert < op.n_experts; ++expert) {
    groups_[expert] = {expert, first, groups_[expert].n_tokens};
    first += groups_[expert].n_tokens;
  }
  std::vector<MatmulToken*> next(op.n_experts);
  for (uint64_t expert = 0; expert < op.n_experts; ++expert) {
    next[expert] = tokens_.data() + (groups_[expert].tokens - tokens_.data());
  }
  const PackedWeight& weight = *packed_[op_index_];
  const ActivationBlock* blocks = quantized(weight, op.x);
  for (uint64_t t = 0; t < route.rows; ++t) {
    for (uint64_t k = 0; k < top_k; ++k) {
      const uint64_t input = shared_input ? t : t * top_k + k;  // of rows of `cols`
      *next[static_cast<size_t>(route.row(t)[k])]++ = {x.data + input * cols,
                                                       blocks_at(blocks, input, cols),
                                                       out.row(t) + k * expert_rows, nullptr};
    }
  }
  products_.run(weight, groups_, {floats_of(op.bias)}, *stop_);
}

void CpuExecutor::execute(const MoeCombineOp& op) {
  const Matrix x = matrix(op.x), route = matrix(op.route), residual = matrix(op.residual),
               out = matrix(op.out);
  const uint64_t top_k = route.cols / 2;
  for_rows(out.rows, x.cols, [&](uint64_t t, uint32_t) {
    if (residual.data) {
      std::memcpy(out.row(t), residual.row(t), out.cols * sizeof(float));
    } else {
      std::fill_n(out.row(t), out.cols, 0.0f);
    }
    for (uint64_t k = 0; k < top_k; ++k) {
      kernels_.add_scaled(out.row(t), x.row(t) + k * out.cols, route.row(t)[top_k + k], out.cols);
    }
  });
}

}  // namespace forge::cpu
