// Products with weights.

#include <algorithm>
#include <bit>

#include "plan_builder.h"
#include "product_shape.h"

namespace forge::metal {

using namespace metal_args;

void PlanBuilder::emit(const MatmulOp& op) {
  const auto [all, decode, prefill] = row_groups(op.x);
  if (emit_gated_product(op, nullptr, decode, prefill)) return;
  const std::vector<Product> products = products_of(op);
  for (const Product& product : products) {
    if (decode.max_rows > 0) emit_matvec(product, value(op.x), nullptr, decode);
  }
  emit_gemms(products, value(op.x), prefill);
}

bool PlanBuilder::emit_norm_with_product(const RmsNormOp& op) {
  const auto* product = next_op<MatmulOp>();
  if (!product || product->x != op.out || op.residual != 0) return false;
  if (op.weight->cols != cols(op.x)) return false;
  const MetalWeight& weight = metal_weight(*product->weight);
  // Each threadgroup reads the norm's weight again.
  const uint64_t threadgroups = divide_up(weight.rows, kMatvecSimdgroups * kMatvecRows);
  if (threadgroups * weight.cols * sizeof(float) > kMostNormBytes) return false;
  // No other reader of the norm.
  if (!program_.is_read_once(op.out)) return false;
  const auto is_fast = [](const WeightRows& rows) { return !weight_format(rows.type).is_generic; };
  if (!std::ranges::all_of(weight.matrix, is_fast)) return false;
  // All conditions are the same for every run: the kernel of a row must not depend on other rows.
  const auto [all, decode, prefill] = row_groups(op.x);
  if (prefill.max_rows > 0) emit_norm(op);
  compute_with_next();
  if (emit_gated_product(*product, &op, decode, prefill)) return true;
  if (prefill.max_rows == 0 && emit_qkv_product(*product, op, decode)) return true;
  const std::vector<Product> products = products_of(*product);
  for (const Product& part : products) {
    if (decode.max_rows > 0) emit_matvec(part, value(op.x), &op, decode);
  }
  emit_gemms(products, value(op.out), prefill);
  return true;
}

bool PlanBuilder::emit_gated_product(const MatmulOp& op, const RmsNormOp* norm,
                                     const RowGroup& decode, const RowGroup& prefill) {
  const auto* glu = next_op<GluOp>();
  if (!glu || glu->x != op.out || cols(op.out) != 2 * glu->width) return false;
  if (!program_.is_read_once(op.out)) return false;
  if (op.bias || op.residual || op.alpha != 1 || op.activation != FORGE_IDENTITY) return false;
  const std::vector<Product> products = products_of(op);
  if (products.size() != 1 || weight_format(products[0].type).is_generic) return false;
  Product product = products[0];
  product.out = value(glu->out);
  product.args.out_stride = glu->width;
  product.args.epilogue.opened = glu->width;
  product.args.epilogue.unit = glu->unit;
  if (decode.max_rows > 0) emit_matvec(product, value(norm ? norm->x : op.x), norm, decode);
  emit_gemms({product}, value(op.x), prefill);
  ++op_index_;
  return true;
}

bool PlanBuilder::emit_qkv_product(const MatmulOp& op, const RmsNormOp& norm,
                                   const RowGroup& rows) {
  // Angles are computed at their first use.
  const auto* table = next_op<RopeTableOp>();
  const auto* append = next_op<RopeAppendOp>(table ? 2 : 1);
  if (!append || append->qkv != op.out || !program_.is_read_once(op.out)) return false;
  if (op.residual || op.alpha != 1 || op.activation != FORGE_IDENTITY) return false;
  const KvShape& kv = append->kv->shape;
  // Norms, and caches with scales, need more of a head than the pairs of numbers that a lane has.
  if (append->q_norm || append->k_norm || kv.has_scales()) return false;
  if (kv.values_in_keys || kv.k_head_dim % 2 != 0 || kv.v_head_dim % 2 != 0) return false;
  // The results are planned to live after the input, so they may have the same memory.
  const auto is_apart = [&](ValueId out) { return are_apart(program_, values_, out, norm.x); };
  if (!is_apart(append->out) || (table && !is_apart(table->out))) return false;
  const RopeAppendArgs args = rope_append_args(*append);
  const uint32_t k_end = (args.n_heads + kv.n_kv_heads) * kv.k_head_dim;
  const std::vector<Product> products = products_of(op);
  const bool divides_heads = std::ranges::any_of(products, [&](const Product& p) {
    return p.first_row < k_end ? p.first_row % kv.k_head_dim != 0 : p.first_row % 2 != 0;
  });
  if (divides_heads) return false;
  if (table) compute_before(1, [&] { emit(*table); });
  const uint32_t element = kv.type == WeightType::F32 ? 0 : kv.type == WeightType::F16 ? 1 : 2;
  for (const Product& p : products) {
    const auto [format, tokens, grid, product] = matvec_of(p, rows);
    launch("rms_norm_qkv", tokens_instance("rms_norm_qkv", format, tokens), grid, {256},
           {value(append->out), value(norm.x), floats_of(norm.weight), p.weights[0], p.weights[1],
            p.weights[2], rows.set.count, rows.set.list, p.bias, numbers(append->kv),
            inputs_.positions, inputs_.sequences, inputs_.page_tables, inputs_.copies,
            inputs_.n_copies, value(append->rope)},
           RmsNormQkvArgs{.normed = {product, norm.eps, norm.weight_offset},
                          .append = args,
                          .first_row = p.first_row,
                          .element = element});
  }
  op_index_ += table ? 2 : 1;
  return true;
}

std::vector<PlanBuilder::Product> PlanBuilder::products_of(const MatmulOp& op) const {
  const MetalWeight& weight = metal_weight(*op.weight);
  std::vector<Product> products;
  for (const WeightRows& rows : weight.matrix) {
    const auto n_rows = static_cast<uint32_t>(rows.rows);
    Product* last = products.empty() ? nullptr : &products.back();
    if (last && last->type == rows.type && last->pieces < kMostPieces) {
      last->weights[last->pieces++] = rows.place();
      (last->pieces == 2 ? last->args.second_row : last->args.third_row) = last->args.rows;
      last->args.rows += n_rows;
      if (last->pieces == 2) last->args.third_row = last->args.rows;
      continue;
    }
    const uint64_t skip = rows.first_row * sizeof(float);
    const Place bias = floats_of(op.bias);
    products.push_back({.out = value(op.out) + skip,
                        .bias = bias + skip,
                        .residual = value(op.residual) + skip,
                        .first_row = static_cast<uint32_t>(rows.first_row),
                        .type = rows.type,
                        .weights = {rows.place()},
                        .pieces = 1,
                        .args = {.row_stride = rows.row_bytes,
                                 .rows = n_rows,
                                 .second_row = n_rows,
                                 .third_row = n_rows,
                                 .cols = static_cast<uint32_t>(weight.cols),
                                 .out_stride = static_cast<uint32_t>(weight.rows),
                                 .split = 1,
                                 .has_row_list = 0,
                                 .epilogue = {.alpha = op.alpha,
                                              .activation = op.activation,
                                              .has_bias = op.bias != nullptr,
                                              .has_residual = op.residual != 0,
                                              .opened = 0,
                                              .unit = 0}}});
  }
  return products;
}

PlanBuilder::Matvec PlanBuilder::matvec_of(const Product& p, const RowGroup& group) const {
  const WeightFormat format = weight_format(p.type);
  const MatvecShape shape = matvec_shape(format, p.args.rows, p.args.cols, group.max_rows);
  MatvecArgs args = p.args;
  args.split = shape.split;
  args.has_row_list = group.kind != RowKind::all;
  const Grid grid{shape.row_groups, divide_up(group.max_rows, shape.tokens)};
  return {format, shape.tokens, grid, args};
}

void PlanBuilder::emit_matvec(const Product& p, Place x, const RmsNormOp* norm,
                              const RowGroup& group) {
  const auto [format, tokens, grid, args] = matvec_of(p, group);
  if (norm) {
    launch("rms_norm_matvec", tokens_instance("rms_norm_matvec", format, tokens), grid, {256},
           {p.out, x, floats_of(norm->weight), p.weights[0], p.weights[1], p.weights[2],
            group.set.count, group.set.list, p.bias, p.residual},
           RmsNormMatvecArgs{.product = args, .eps = norm->eps, .offset = norm->weight_offset});
    return;
  }
  launch("matvec", tokens_instance("matvec", format, tokens), grid, {256},
         {p.out, x, p.weights[0], p.weights[1], p.weights[2], group.set.count, group.set.list,
          p.bias, p.residual, memory_.codebooks},
         args);
}

PlanBuilder::GemmRows PlanBuilder::round_rows(Place x, uint32_t cols, uint32_t pieces,
                                              const RowGroup& group) {
  // Rows keep their places among those of all classes.
  const uint64_t rows = uint64_t{std::max(shape_.tokens, shape_.outputs)} * pieces;
  const GemmRows rounded = {scratch(rows * rounded_cols(cols) * sizeof(uint16_t)),
                            scratch(rows * sizeof(float))};
  launch("round_rows", "round_rows", {group.max_rows, pieces}, {256},
         {rounded.x, rounded.factors, x, group.set.count, group.set.list},
         RoundRowsArgs{.cols = cols,
                       .pieces = pieces,
                       .has_row_list = group.kind != RowKind::all});
  return rounded;
}

void PlanBuilder::emit_gemm(const Product& p, const GemmRows& rows, const RowGroup& group) {
  MatvecArgs args = p.args;
  args.has_row_list = group.kind != RowKind::all;
  const Grid grid{divide_up(group.max_rows, kGemmTokens), divide_up(p.args.rows, kGemmRows)};
  launch("gemm", "gemm<" + weight_format(p.type).name + ">", grid, {128},
         {p.out, rows.x, rows.factors, p.weights[0], p.weights[1], p.weights[2], group.set.count,
          group.set.list, p.bias, p.residual, memory_.codebooks},
         args);
}

void PlanBuilder::emit_gemms(const std::vector<Product>& products, Place x,
                             const RowGroup& group) {
  if (group.max_rows == 0) return;
  std::optional<GemmRows> rounded;
  for (const Product& product : products) {
    if (!is_rounded(product.type)) {
      emit_gemm(product, {x, {}}, group);
      continue;
    }
    if (!rounded) rounded = round_rows(x, product.args.cols, 1, group);
    emit_gemm(product, *rounded, group);
  }
}

}  // namespace forge::metal
