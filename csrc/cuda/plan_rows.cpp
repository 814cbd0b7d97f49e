// Operations on one row of activations at a time.

#include "plan_builder.h"

namespace forge::cuda {

namespace {

// Longer rows are normalised by larger blocks.
constexpr uint32_t kLongRow = 4096;
// Shared memory in which two norms of one launch keep a row.
constexpr uint32_t kMostNormShared = 96 * 1024;

// As in kernels/cuda/gather_columns.cu.
struct ColumnPiece {
  DevicePointer x;
  uint32_t cols, width, first, step;
  float scale;
};
struct ColumnPieces {
  ColumnPiece of[kMaxPieces];
};

uint32_t norm_block(uint32_t cols) { return cols > kLongRow ? 1024 : 256; }

}  // namespace

void PlanBuilder::emit(const EmbedOp& op) {
  const UnifiedWeight weight = unified(cuda_weight(*op.weight));
  launch("embed.cu", "embed<" + weight_format(weight.type).name + ">", {shape_.tokens}, 128, 0,
         value(op.out), inputs_.tokens, inputs_.n_tokens, weight.data, weight.row_bytes,
         cols(op.out), op.scale, memory_.codebooks);
}

void PlanBuilder::emit(const RmsNormOp& op) {
  if (emit_two_norms(op)) return;
  const auto n = static_cast<uint32_t>(op.weight->cols);
  launch("rms_norm.cu", "rms_norm", {max_rows(op.out), cols(op.x) / n}, norm_block(n), 0,
         value(op.out), value(op.x), floats_of(op.weight), value(op.residual), n_rows(op.x), n,
         op.eps, op.weight_offset);
}

bool PlanBuilder::emit_two_norms(const RmsNormOp& op) {
  const uint32_t n = cols(op.x);
  const RmsNormOp* next = device_.device().fuses_operations() ? second_norm(op) : nullptr;
  if (!next || n * sizeof(float) > kMostNormShared) return false;
  launch("fused_residual_rms_norm.cu", "fused_residual_rms_norm", {max_rows(op.out)},
         norm_block(n), n * static_cast<uint32_t>(sizeof(float)), value(next->out), value(op.out),
         value(op.x), floats_of(op.weight), value(op.residual), floats_of(next->weight),
         n_rows(op.x), n, op.eps, op.weight_offset, next->eps, next->weight_offset);
  ++op_index_;
  return true;
}

void PlanBuilder::emit(const LayerNormOp& op) {
  const uint32_t n = cols(op.x);
  launch("layer_norm.cu", "layer_norm", {max_rows(op.out)}, norm_block(n), 0, value(op.out),
         value(op.x), floats_of(op.weight), floats_of(op.bias), n_rows(op.x), n, op.eps);
}

void PlanBuilder::emit(const RopeTableOp& op) {
  launch("rope_table.cu", "rope_table", {shape_.tokens}, 128, 0, value(op.out), inputs_.positions,
         floats_of(op.inv_freq), inputs_.n_tokens, static_cast<uint32_t>(op.inv_freq->cols),
         op.scale);
}

void PlanBuilder::emit(const GluOp& op) {
  const uint32_t n = cols(op.out);
  launch("glu.cu", "glu", {divide_up(n, kBlockElements), max_rows(op.out)}, 256, 0, value(op.out),
         value(op.x), n_rows(op.x), n, op.width, op.unit);
}

void PlanBuilder::emit(const GatherColumnsOp& op) {
  ColumnPieces pieces{};
  for (size_t p = 0; p < op.pieces.size(); ++p) {
    const auto& [from, width, first, step, scale] = op.pieces[p];
    if (from != 0) pieces.of[p] = {value(from), cols(from), width, first, step, scale};
  }
  const uint32_t n = cols(op.out);
  launch("gather_columns.cu", "gather_columns", {divide_up(n, kBlockElements), max_rows(op.out)},
         256, 0, value(op.out), pieces, n_rows(op.out), n, static_cast<uint32_t>(op.group_cols()));
}

void PlanBuilder::emit(const PermuteColumnsOp& op) {
  const uint32_t n = cols(op.out);
  launch("permute_columns.cu", "permute_columns", {divide_up(n, kBlockElements), max_rows(op.out)},
         256, 0, value(op.out), value(op.x), floats_of(op.order), value(op.route), n_rows(op.out),
         cols(op.x), static_cast<uint32_t>(op.order->cols), n);
}

void PlanBuilder::emit(const GatherOutputsOp& op) {
  const uint32_t n = cols(op.x);
  launch("gather_outputs.cu", "gather_outputs", {divide_up(n, kBlockElements), shape_.outputs}, 256,
         0, value(op.out), value(op.x), inputs_.output_rows, inputs_.n_outputs, n);
}

void PlanBuilder::emit(const SoftcapOp& op) {
  const uint32_t n = cols(op.x);
  launch("softcap.cu", "softcap", {divide_up(n, kBlockElements), max_rows(op.out)}, 256, 0,
         value(op.out), value(op.x), n_rows(op.x), n, op.cap);
}

void PlanBuilder::emit(const ClampOp& op) {
  const uint32_t n = cols(op.x);
  launch("clamp.cu", "clamp_values", {divide_up(n, kBlockElements), max_rows(op.out)}, 256, 0,
         value(op.out), value(op.x), n_rows(op.x), n, op.limit);
}

}  // namespace forge::cuda
