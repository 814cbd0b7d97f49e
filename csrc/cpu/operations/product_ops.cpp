// Products with dense weights and low-rank adapters.

#include <algorithm>
#include <cstring>

#include "../cpu_executor.h"

namespace forge::cpu {

void CpuExecutor::prepare_product(const Weight& weight, uint64_t group_rows, ValueId x) {
  PackedWeight& packed = static_cast<const CpuWeight&>(weight).packed(group_rows, device_->pool);
  packed_[op_index_] = &packed;
  const uint64_t rows = program_->max_rows(x) * (program_->value(x).cols / weight.cols);
  if (packed.rounds(kernels_)) products_.reserve_rounded(rows, weight.cols);
  if (packed.quantized() && !is_blocks_[x - 1]) products_.reserve(rows, weight.cols);
}

Activations CpuExecutor::activations(const PackedWeight& weight, ValueId x, uint64_t cols) {
  const Matrix all = matrix(x);
  const uint64_t rows = all.rows * (all.cols / cols);
  const ActivationBlock* blocks = blocks_of(x);
  if (!blocks) blocks = products_.quantize(weight, all.data, rows, cols);
  return {all.data, blocks, products_.round(weight, all.data, rows, cols), rows, cols};
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
  const Activations rows = activations(weight, op.x, x.cols);
  tokens_.clear();
  for (uint64_t t = 0; t < x.rows; ++t) {
    tokens_.push_back(rows.token(t, out.row(t), residual.row(t)));
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
  const Activations rows = activations(weight, op.x, cols);
  tokens_.clear();
  for (uint64_t head = 0; head < op.n_heads; ++head) {
    for (uint64_t t = 0; t < x.rows; ++t) {
      tokens_.push_back(rows.token(t * op.n_heads + head, out.row(t) + head * head_rows, nullptr));
    }
  }
  groups_.clear();
  for (uint64_t head = 0; head < op.n_heads; ++head) {
    groups_.push_back({head, tokens_.data() + head * x.rows, x.rows});
  }
  products_.run(weight, groups_, {}, *stop_);
}

void CpuExecutor::prepare(const LoraOp& op) {
  for (const WeightRef& weight : {WeightRef(op.a), WeightRef(op.b), WeightRef(op.ranks)}) {
    floats_of(weight);
  }
  const uint64_t n_results = program_->max_rows(op.x) * program_->results_a_row(op);
  const uint64_t products = n_results * op.ranks->rows;
  if (rank_products_.size() < products) rank_products_.resize(products);
}

void CpuExecutor::execute(const LoraOp& op) {
  const Matrix y = matrix(op.y), x = matrix(op.x), residual = matrix(op.residual),
               route = matrix(op.route), out = matrix(op.out);
  const float *a = floats_of(op.a), *b = floats_of(op.b), *ranks = floats_of(op.ranks);
  const uint64_t n_ranks = op.ranks->rows, x_cols = op.a->cols, width = op.b->cols;
  const uint64_t per_row = program_->results_a_row(op), n_results = out.rows * per_row;
  const uint64_t cols = out.cols / per_row;
  const Rows rows = program_->value(op.x).rows;
  const auto block_of = [&](uint64_t result) {
    const uint64_t k = result % per_row;
    return route.data ? static_cast<uint64_t>(route.row(result / per_row)[k]) : k;
  };

  // The results of a rank are neighbours, so that it stays in the cache.
  for_rows(n_ranks * n_results, x_cols, [&](uint64_t pair, uint32_t) {
    const uint64_t rank = pair / n_results, result = pair % n_results, t = result / per_row;
    const float scale = inputs_->scales_of(rows, t)[static_cast<size_t>(ranks[3 * rank])];
    float& product = rank_products_[result * n_ranks + rank];
    product = 0;
    if (scale == 0) return;
    const float* from = x.row(t) + (x.cols == x_cols ? 0 : result % per_row * x_cols);
    const float* row = a + (block_of(result) * op.a_step() + rank) * x_cols;
    product = scale * kernels_.dot(row, from, x_cols);
  });

  constexpr uint64_t kColumns = 512;
  const uint64_t n_pieces = (cols + kColumns - 1) / kColumns;
  for_rows(n_results * n_pieces, kColumns * 8, [&](uint64_t piece, uint32_t) {
    const uint64_t result = piece / n_pieces, begin = piece % n_pieces * kColumns;
    const uint64_t end = std::min(cols, begin + kColumns), at = result * cols + begin;
    const float* b_rows = b + block_of(result) * op.b_step() * width;
    float sums[kColumns];
    std::memcpy(sums, y.data + at, (end - begin) * sizeof(float));
    for (uint64_t rank = 0; rank < n_ranks; ++rank) {
      const float product = rank_products_[result * n_ranks + rank];
      if (product == 0) continue;
      const auto first = static_cast<uint64_t>(ranks[3 * rank + 1]);
      const uint64_t from = std::max(begin, first);
      const uint64_t to = std::min(end, first + static_cast<uint64_t>(ranks[3 * rank + 2]));
      if (from >= to) continue;
      kernels_.add_scaled(sums + (from - begin), b_rows + rank * width + (from - first), product,
                          to - from);
    }
    kernels_.epilogue(sums, end - begin, op.activation, op.alpha,
                      residual.data ? residual.data + at : nullptr, out.data + at);
  });
}

}  // namespace forge::cpu
