// Operations on one row of activations at a time.

#include "plan_builder.h"

namespace forge::metal {

using namespace metal_args;

namespace {

Group norm_group(uint32_t cols) { return {cols > kLongRow ? 1024u : 256u}; }

}  // namespace

void PlanBuilder::emit(const EmbedOp& op) {
  const WeightRows& weight = *metal_weight(*op.weight).unified;
  launch("embed", "embed<" + weight_format(weight.type).name + ">", {shape_.tokens}, {128},
         {value(op.out), inputs_.tokens, inputs_.n_tokens, weight.place(), memory_.codebooks},
         EmbedArgs{.row_stride = weight.row_bytes, .cols = cols(op.out), .scale = op.scale});
}

void PlanBuilder::emit(const RmsNormOp& op) {
  if (!emit_two_norms(op) && !emit_norm_with_product(op)) emit_norm(op);
}

void PlanBuilder::emit_norm(const RmsNormOp& op) {
  const auto n = static_cast<uint32_t>(op.weight->cols);
  const uint32_t groups = cols(op.x) / n;
  launch("rms_norm", "rms_norm", {max_rows(op.out), groups}, norm_group(n),
         {value(op.out), value(op.x), floats_of(op.weight), value(op.residual), n_rows(op.x)},
         RmsNormArgs{.cols = n,
                     .groups = groups,
                     .eps = op.eps,
                     .offset = op.weight_offset,
                     .has_residual = op.residual != 0});
}

bool PlanBuilder::emit_two_norms(const RmsNormOp& op) {
  const RmsNormOp* next = second_norm(op);
  if (!next) return false;
  const uint32_t n = cols(op.x);
  launch("fused_residual_rms_norm", "fused_residual_rms_norm", {max_rows(op.out)}, norm_group(n),
         {value(next->out), value(op.out), value(op.x), floats_of(op.weight), value(op.residual),
          floats_of(next->weight), n_rows(op.x)},
         FusedResidualRmsNormArgs{.cols = n,
                                  .eps = op.eps,
                                  .offset = op.weight_offset,
                                  .next_eps = next->eps,
                                  .next_offset = next->weight_offset,
                                  .has_x_weight = 1});
  ++op_index_;
  return true;
}

void PlanBuilder::emit(const LayerNormOp& op) {
  const uint32_t n = cols(op.x);
  launch("layer_norm", "layer_norm", {max_rows(op.out)}, norm_group(n),
         {value(op.out), value(op.x), floats_of(op.weight), floats_of(op.bias), n_rows(op.x)},
         LayerNormArgs{.cols = n, .eps = op.eps, .has_bias = op.bias != nullptr});
}

void PlanBuilder::emit(const RopeTableOp& op) {
  launch("rope_table", "rope_table", {shape_.tokens}, {128},
         {value(op.out), inputs_.positions, floats_of(op.inv_freq), inputs_.n_tokens},
         RopeTableArgs{.n_freqs = cols(op.out) / 2, .scale = op.scale});
}

void PlanBuilder::emit(const GluOp& op) {
  const uint32_t n = cols(op.out);
  launch("glu", "glu", elementwise_grid(n, max_rows(op.out)), {256},
         {value(op.out), value(op.x), n_rows(op.x)},
         GluArgs{.out_cols = n, .width = op.width, .unit = op.unit});
}

void PlanBuilder::emit(const GatherColumnsOp& op) {
  const uint32_t n = cols(op.out);
  GatherColumnsArgs args{.out_cols = n,
                         .group_cols = static_cast<uint32_t>(op.group_cols()),
                         .pieces = {}};
  for (size_t p = 0; p < op.pieces.size(); ++p) {
    const auto& [from, width, first, step, scale] = op.pieces[p];
    if (from != 0) args.pieces[p] = {cols(from), width, first, step, scale};
  }
  launch("gather_columns", "gather_columns", elementwise_grid(n, max_rows(op.out)), {256},
         {value(op.out), value(op.pieces[0].value), value(op.pieces[1].value),
          value(op.pieces[2].value), n_rows(op.out)},
         args);
}

void PlanBuilder::emit(const PermuteColumnsOp& op) {
  const uint32_t n = cols(op.out);
  launch("permute_columns", "permute_columns", elementwise_grid(n, max_rows(op.out)), {256},
         {value(op.out), value(op.x), floats_of(op.order), value(op.route), n_rows(op.out)},
         PermuteColumnsArgs{.x_cols = cols(op.x),
                            .cols = static_cast<uint32_t>(op.order->cols),
                            .out_cols = n,
                            .routed = op.route != 0 ? 1u : 0u});
}

void PlanBuilder::emit(const GatherOutputsOp& op) {
  const uint32_t n = cols(op.x);
  launch("gather_outputs", "gather_outputs", elementwise_grid(n, shape_.outputs), {256},
         {value(op.out), value(op.x), inputs_.output_rows, inputs_.n_outputs},
         GatherOutputsArgs{.cols = n});
}

void PlanBuilder::emit(const SoftcapOp& op) {
  const uint32_t n = cols(op.x);
  launch("softcap", "softcap", elementwise_grid(n, max_rows(op.out)), {256},
         {value(op.out), value(op.x), n_rows(op.x)}, SoftcapArgs{.cols = n, .cap = op.cap});
}

void PlanBuilder::emit(const ClampOp& op) {
  const uint32_t n = cols(op.x);
  launch("clamp", "clamp_values", elementwise_grid(n, max_rows(op.out)), {256},
         {value(op.out), value(op.x), n_rows(op.x)}, ClampArgs{.cols = n, .limit = op.limit});
}

}  // namespace forge::metal
