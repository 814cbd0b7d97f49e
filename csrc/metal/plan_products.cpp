// Products with weights.

#include <algorithm>
#include <bit>

#include "plan_builder.h"
#include "product_shape.h"

namespace forge::metal {

using namespace metal_args;

void PlanBuilder::emit(const MatmulOp& op) { emit_products(op, op.x, nullptr); }

bool PlanBuilder::emit_norm_with_product(const RmsNormOp& op) {
  const auto* product = next_op<MatmulOp>();
  if (!product || product->x != op.out || op.residual != 0) return false;
  const MetalWeight& weight = metal_weight(*product->weight);
  // Whether it pays: few tokens, few rows, and nobody else who wants the norm.
  if (max_rows(op.out) > kMostMatvecTokens || weight.rows > kMostNormMatvecRows) return false;
  if (product->residual == op.out || !is_used_once(op.out)) return false;
  // Whether it can be: the product's result is planned to live after the norm's input has died.
  if (!are_apart(product->out, op.x)) return false;
  const auto is_fast = [](const WeightRows& rows) { return !weight_format(rows.type).is_generic; };
  if (!std::ranges::all_of(weight.matrix, is_fast)) return false;
  emit_products(*product, op.x, &op);
  ++op_index_;
  return true;
}

void PlanBuilder::emit_products(const MatmulOp& op, ValueId x, const RmsNormOp* norm) {
  const MetalWeight& weight = metal_weight(*op.weight);
  for (const WeightRows& rows : weight.matrix) {
    const uint64_t skip = rows.first_row * sizeof(float);
    const Place bias = floats_of(op.bias);
    const Product product{
        .out = value(op.out) + skip,
        .x = value(x),
        .n_rows = n_rows(x),
        .bias = bias + skip,
        .residual = value(op.residual) + skip,
        .max_rows = max_rows(x),
        .rows = &rows,
        .args = {.row_stride = rows.row_bytes,
                 .rows = static_cast<uint32_t>(rows.rows),
                 .cols = static_cast<uint32_t>(weight.cols),
                 .out_stride = static_cast<uint32_t>(weight.rows),
                 .split = 1,
                 .epilogue = {.alpha = op.alpha,
                              .activation = op.activation,
                              .has_bias = op.bias != nullptr,
                              .has_residual = op.residual != 0}},
        .norm = norm};
    if (product.max_rows <= kMostMatvecTokens) {
      emit_matvec(product);
    } else {
      emit_gemm(product);
    }
  }
}

void PlanBuilder::emit_matvec(const Product& p) {
  const WeightFormat format = weight_format(p.rows->type);
  const MatvecShape shape = matvec_shape(format, p.args.rows, p.args.cols, p.max_rows);
  MatvecArgs args = p.args;
  args.split = shape.split;
  const Grid grid{shape.row_groups, divide_up(p.max_rows, shape.tokens)};
  if (p.norm) {
    launch("rms_norm_matvec", instance("rms_norm_matvec", format, shape.tokens), grid, {256},
           {p.out, p.x, floats_of(p.norm->weight), p.rows->place(), p.n_rows, p.bias, p.residual},
           RmsNormMatvecArgs{
               .product = args, .eps = p.norm->eps, .offset = p.norm->weight_offset});
    return;
  }
  launch("matvec", instance("matvec", format, shape.tokens), grid, {256},
         {p.out, p.x, p.rows->place(), p.n_rows, p.bias, p.residual, memory_.codebooks}, args);
}

void PlanBuilder::emit_gemm(const Product& p) {
  const Grid grid{divide_up(p.max_rows, kGemmTokens), divide_up(p.args.rows, kGemmRows)};
  launch("gemm", "gemm<" + weight_format(p.rows->type).name + ">", grid, {128},
         {p.out, p.x, p.rows->place(), p.n_rows, p.bias, p.residual, memory_.codebooks}, p.args);
}

}  // namespace forge::metal
