#include "run_profile.h"

#include <algorithm>
#include <map>

#include "json_text.h"

namespace forge {

namespace {

// Adds up what the operands of an operation and its result take.
class WorkSum {
 public:
  WorkSum(const Program& program, const StepInputs& inputs) : program_(program), inputs_(inputs) {}

  OperationWork sum() const { return sum_; }

  void operator()(const AttentionOp& op) {
    const KvShape& kv = op.kv->shape;
    const uint64_t position_bytes = op.kv->page_bytes / kv.page_tokens;
    // The longest view of each sequence: its earlier tokens see the same keys.
    std::map<int32_t, uint64_t> seen;
    uint64_t scores = 0;
    for (uint32_t token = 0; token < inputs_.n_tokens; ++token) {
      const KeyRange keys = visible_keys(op, inputs_, token);
      const uint64_t visible = keys.end - keys.begin;
      uint64_t& most = seen[inputs_.sequences[token]];
      most = std::max(most, visible);
      scores += visible;
    }
    for (const auto& [sequence, positions] : seen) sum_.bytes += positions * position_bytes;
    sum_.flops += 2 * scores * op.n_heads * (uint64_t{kv.k_head_dim} + kv.v_head_dim);
    values(op);
  }

  // Rows of the cache are read and, if there is an x, written.
  void operator()(const PreviousRowsOp& op) {
    const uint64_t position_bytes = op.kv->page_bytes / op.kv->shape.page_tokens;
    sum_.bytes += (op.x == 0 ? 1 : 2) * inputs_.n_tokens * position_bytes;
    values(op);
  }

  void operator()(const EmbedOp& op) { lookup(op); }

  void operator()(const AddEmbeddingOp& op) { lookup(op); }

  void operator()(const MatmulOp& op) {
    product(op, op.weight, rows_of(op.out), op.weight->rows);
  }

  void operator()(const HeadMatmulOp& op) {
    product(op, op.weight, rows_of(op.out), op.weight->rows);
  }

  void operator()(const MoeMatmulOp& op) {
    const uint64_t expert_rows = op.weight->rows / op.n_experts;
    const uint64_t pairs = rows_of(op.out) * (program_.value(op.route).cols / 2);
    sum_.bytes += std::min<uint64_t>(pairs, op.n_experts) * (op.weight->bytes / op.n_experts);
    sum_.flops += 2 * pairs * expert_rows * op.weight->cols;
    values(op);
  }

  void operator()(const auto& op) { values(op); }

 private:
  uint64_t rows_of(ValueId id) const { return id == 0 ? 0 : inputs_.rows(program_.value(id).rows); }
  uint64_t bytes_of(ValueId id) const {
    return id == 0 ? 0 : rows_of(id) * program_.value(id).cols * sizeof(float);
  }

  void lookup(const auto& op) {
    sum_.bytes += inputs_.n_tokens * (op.weight->bytes / op.weight->rows);
    values(op);
  }

  void product(const auto& op, const WeightRef& weight, uint64_t n_rows, uint64_t out_cols) {
    sum_.bytes += weight->bytes;
    sum_.flops += 2 * n_rows * out_cols * weight->cols;
    values(op);
  }

  void values(const auto& op) {
    for (const ValueId id : op.reads()) sum_.bytes += bytes_of(id);
    sum_.bytes += bytes_of(op.out);
  }

  const Program& program_;
  const StepInputs& inputs_;
  OperationWork sum_;
};

std::string name_of(const Op& op) {
  return visit_op([](const auto& typed) { return std::string(typed.kName); }, op);
}

}  // namespace

OperationWork work_of(const Program& program, const Op& op, const StepInputs& inputs) {
  WorkSum sum(program, inputs);
  visit_op(sum, op);
  return sum.sum();
}

std::string matrix_of(const Op& op) {
  std::string text;
  const auto describe = [&](const auto& operand) {
    if constexpr (std::is_base_of_v<Matrix, std::remove_cvref_t<decltype(operand)>>) {
      text = std::to_string(operand->rows) + " x " + std::to_string(operand->cols) + " " +
             operand->type;
    }
  };
  visit_op(
      [&](const auto& typed) {
        typed.with_operands([&](const auto&... operands) { (describe(operands), ...); });
      },
      op);
  return text;
}

void RunProfile::end_step(const Program& program, const StepInputs& inputs) {
  std::vector<bool> is_counted(program.ops.size());
  for (Span& span : spans_) {
    if (span.step != step_ || is_counted[span.operation]) continue;
    is_counted[span.operation] = true;
    span.work = work_of(program, program.ops[span.operation], inputs);
  }
  ++step_;
}

std::string RunProfile::json(const Program& program) const {
  std::string list;
  for (const Span& span : spans_) {
    const Op& op = program.ops[span.operation];
    JsonObject entry;
    entry.add("step", uint64_t{span.step});
    entry.add("operation", name_of(op));
    entry.add("matrix", matrix_of(op));
    entry.add("kernel", span.kernel);
    entry.add("begin", span.begin);
    entry.add("duration", span.duration);
    entry.add("bytes", span.work.bytes);
    entry.add("flops", span.work.flops);
    if (!list.empty()) list += ",";
    list += entry.str();
  }
  return "[" + list + "]";
}

}  // namespace forge
