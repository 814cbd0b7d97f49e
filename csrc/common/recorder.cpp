#include "recorder.h"

#include <algorithm>
#include <cmath>

#include "error.h"

namespace forge {

namespace {

// Keeps every index computation of a backend far from overflow.
constexpr uint64_t kMaxCols = 1u << 28;

}  // namespace

Recorder::Recorder(const StepLimits& limits) : program_(std::make_shared<Program>()) {
  require(limits.max_tokens >= 1 && limits.max_tokens <= 1u << 20,
          "step: max_tokens is ", limits.max_tokens, "; valid is 1 to ", 1u << 20);
  require(limits.max_outputs >= 1 && limits.max_outputs <= limits.max_tokens,
          "step: max_outputs is ", limits.max_outputs, "; valid is 1 to max_tokens (",
          limits.max_tokens, ")");
  require(limits.max_sequences >= 1 && limits.max_sequences <= limits.max_tokens,
          "step: max_sequences is ", limits.max_sequences, "; valid is 1 to max_tokens (",
          limits.max_tokens, ")");
  require(limits.max_pages >= 1 && limits.max_pages <= 1u << 24,
          "step: max_pages is ", limits.max_pages, "; valid is 1 to ", 1u << 24);
  program_->limits = limits;
}

void Recorder::check_open() const {
  require(!finished_, "step: recording has ended");
  require(!program_->samples, "step: nothing can follow the sample operation");
}

const Value& Recorder::use(const char* operation, const char* role, ValueId id) const {
  require(id >= 1 && id <= program_->values.size(), operation, ": ", role, " is ", id,
          ", which is no value of this step");
  return program_->value(id);
}

void Recorder::check_vector(const char* operation, const char* role, const WeightRef& weight,
                            uint64_t cols) const {
  if (!weight) return;
  require(weight->rows == 1 && weight->cols == cols, operation, ": ", role, " is [", weight->rows,
          ", ", weight->cols, "]; expected [1, ", cols, "]");
}

void Recorder::check_residual(const char* operation, ValueId residual, Rows rows,
                              uint64_t cols) const {
  if (residual == 0) return;
  const Value& value = use(operation, "residual", residual);
  require(value.rows == rows && value.cols == cols, operation, ": residual has ", value.cols,
          " columns; expected ", cols, " and the rows of the result");
}

void Recorder::use_kv(const char* operation, const KvRef& kv) {
  Program& program = *program_;
  if (program.page_tokens == 0) {
    program.page_tokens = kv->shape.page_tokens;
    program.n_pages = kv->shape.n_pages;
  }
  require(kv->shape.page_tokens == program.page_tokens, operation, ": this cache has pages of ",
          kv->shape.page_tokens, " tokens, an earlier one of ", program.page_tokens);
  program.n_pages = std::min(program.n_pages, kv->shape.n_pages);
}

void Recorder::check_activation(const char* operation, uint32_t activation) const {
  require(activation <= FORGE_GELU_ERF || activation == FORGE_RELU_SQUARED, operation,
          ": unknown activation ", activation);
}

ValueId Recorder::add_value(Rows rows, uint64_t cols) {
  require(cols >= 1 && cols <= kMaxCols, "step: a value of ", cols, " columns; valid is 1 to ",
          kMaxCols);
  program_->values.push_back({rows, cols});
  return static_cast<ValueId>(program_->values.size());
}

ValueId Recorder::embed(WeightRef weight, float scale) {
  check_open();
  program_->vocabulary =
      program_->vocabulary ? std::min(program_->vocabulary, weight->rows) : weight->rows;
  const uint64_t cols = weight->cols;
  return add(EmbedOp{std::move(weight), scale, 0}, Rows::tokens, cols);
}

ValueId Recorder::rms_norm(ValueId x, WeightRef weight, float eps, float weight_offset,
                           ValueId residual) {
  check_open();
  const Value in = use("rms_norm", "x", x);
  require(weight->rows == 1 && in.cols % weight->cols == 0, "rms_norm: weight is [", weight->rows,
          ", ", weight->cols, "]; expected [1, ", in.cols, "], or a divisor of these columns");
  check_residual("rms_norm", residual, in.rows, in.cols);
  return add(RmsNormOp{x, std::move(weight), eps, weight_offset, residual, 0}, in.rows, in.cols);
}

ValueId Recorder::layer_norm(ValueId x, WeightRef weight, WeightRef bias, float eps) {
  check_open();
  const Value in = use("layer_norm", "x", x);
  check_vector("layer_norm", "weight", weight, in.cols);
  check_vector("layer_norm", "bias", bias, in.cols);
  return add(LayerNormOp{x, std::move(weight), std::move(bias), eps, 0}, in.rows, in.cols);
}

ValueId Recorder::matmul(ValueId x, WeightRef weight, WeightRef bias, float alpha,
                         uint32_t activation, ValueId residual) {
  check_open();
  const Value in = use("matmul", "x", x);
  require(weight->cols == in.cols, "matmul: x has ", in.cols, " columns, the weight ",
          weight->cols);
  check_vector("matmul", "bias", bias, weight->rows);
  check_activation("matmul", activation);
  check_residual("matmul", residual, in.rows, weight->rows);
  const uint64_t cols = weight->rows;
  return add(MatmulOp{x, std::move(weight), std::move(bias), alpha, activation, residual, 0},
             in.rows, cols);
}

ValueId Recorder::head_matmul(ValueId x, WeightRef weight, uint32_t n_heads) {
  check_open();
  const Value in = use("head_matmul", "x", x);
  require(n_heads >= 1 && n_heads <= 4096, "head_matmul: ", n_heads, " heads; valid is 1 to 4096");
  require(weight->rows % n_heads == 0, "head_matmul: ", weight->rows, " rows are not ", n_heads,
          " heads of equal size");
  require(in.cols == n_heads * weight->cols, "head_matmul: x has ", in.cols, " columns; expected ",
          n_heads, " heads of ", weight->cols);
  const uint64_t cols = weight->rows;
  return add(HeadMatmulOp{x, std::move(weight), n_heads, 0}, in.rows, cols);
}

ValueId Recorder::rope_table(WeightRef inv_freq, float scale) {
  check_open();
  check_vector("rope_table", "inv_freq", inv_freq, inv_freq->cols);
  const uint64_t cols = 2 * inv_freq->cols;
  return add(RopeTableOp{std::move(inv_freq), scale, 0}, Rows::tokens, cols);
}

ValueId Recorder::rope_append(ValueId qkv, KvRef kv, uint32_t n_heads, WeightRef q_norm,
                              WeightRef k_norm, float eps, float weight_offset, ValueId rope,
                              uint32_t rope_layout) {
  check_open();
  const KvShape& shape = kv->shape;
  const Value in = use("rope_append", "qkv", qkv);
  require(n_heads >= 1 && n_heads % shape.n_kv_heads == 0, "rope_append: ", n_heads,
          " heads are no multiple of ", shape.n_kv_heads, " kv heads");
  const uint64_t q_cols = static_cast<uint64_t>(n_heads) * shape.k_head_dim;
  const uint64_t k_cols = static_cast<uint64_t>(shape.n_kv_heads) * shape.k_head_dim;
  const uint64_t v_cols =
      shape.values_in_keys ? 0 : static_cast<uint64_t>(shape.n_kv_heads) * shape.v_head_dim;
  require(in.rows == Rows::tokens && in.cols == q_cols + k_cols + v_cols, "rope_append: qkv has ",
          in.cols, " columns; expected ", q_cols + k_cols + v_cols, " (", q_cols, " + ", k_cols,
          " + ", v_cols, ")");
  for (const auto& [role, weight, full] : {std::tuple{"q_norm", q_norm, q_cols},
                                           std::tuple{"k_norm", k_norm, k_cols}}) {
    if (!weight) continue;
    require(weight->rows == 1 && (weight->cols == shape.k_head_dim || weight->cols == full),
            "rope_append: ", role, " is [", weight->rows, ", ", weight->cols, "]; expected [1, ",
            shape.k_head_dim, "] or [1, ", full, "]");
  }
  if (rope != 0) {
    const Value& table = use("rope_append", "rope", rope);
    require(table.rows == Rows::tokens && table.cols % 2 == 0 && table.cols <= shape.k_head_dim,
            "rope_append: the rope table rotates ", table.cols, " elements of heads of ",
            shape.k_head_dim);
    require(!shape.values_in_keys || table.cols <= shape.k_head_dim - shape.v_head_dim,
            "rope_append: the rope table rotates ", table.cols, " elements of heads of ",
            shape.k_head_dim, ", of which the first ", shape.v_head_dim, " are values");
  }
  require(rope_layout <= FORGE_ROPE_INTERLEAVED, "rope_append: unknown rope layout ", rope_layout);
  use_kv("rope_append", kv);
  return add(RopeAppendOp{qkv, std::move(kv), n_heads, std::move(q_norm), std::move(k_norm), eps,
                          weight_offset, rope, rope_layout, 0},
             Rows::tokens, q_cols);
}

ValueId Recorder::attention(ValueId q, KvRef kv, uint32_t n_heads, float scale, uint32_t window,
                            float softcap, WeightRef sinks) {
  check_open();
  const KvShape& shape = kv->shape;
  const Value in = use("attention", "q", q);
  require(n_heads >= 1 && n_heads % shape.n_kv_heads == 0, "attention: ", n_heads,
          " heads are no multiple of ", shape.n_kv_heads, " kv heads");
  require(in.rows == Rows::tokens &&
              in.cols == static_cast<uint64_t>(n_heads) * shape.k_head_dim,
          "attention: q has ", in.cols, " columns; expected ", n_heads, " heads of ",
          shape.k_head_dim);
  require(softcap >= 0 && std::isfinite(softcap), "attention: softcap is ", softcap,
          "; valid is a finite number >= 0");
  check_vector("attention", "sinks", sinks, n_heads);
  use_kv("attention", kv);
  const uint64_t cols = static_cast<uint64_t>(n_heads) * shape.v_head_dim;
  return add(AttentionOp{q, std::move(kv), n_heads, scale, window, softcap, std::move(sinks), 0},
             Rows::tokens, cols);
}

ValueId Recorder::glu(ValueId x, uint32_t width, uint32_t unit) {
  check_open();
  const Value in = use("glu", "x", x);
  require(width >= 1 && in.cols % (2 * static_cast<uint64_t>(width)) == 0, "glu: x has ", in.cols,
          " columns, which are no groups of twice ", width);
  require(unit <= FORGE_RELU_SQUARED, "glu: unknown unit ", unit);
  return add(GluOp{x, width, unit, 0}, in.rows, in.cols / 2);
}

ValueId Recorder::gather_columns(std::span<const forge_piece> pieces, uint32_t n_groups) {
  check_open();
  require(!pieces.empty() && pieces.size() <= FORGE_MAX_PIECES, "gather_columns: ", pieces.size(),
          " pieces; valid is 1 to ", static_cast<int>(FORGE_MAX_PIECES));
  require(n_groups >= 1 && n_groups <= kMaxCols, "gather_columns: ", n_groups, " groups");
  GatherColumnsOp op{{}, n_groups, 0};
  std::ranges::copy(pieces, op.pieces.begin());
  const Rows rows = use("gather_columns", "value", pieces[0].value).rows;
  for (const forge_piece& piece : pieces) {
    const Value& in = use("gather_columns", "value", piece.value);
    const uint64_t last = uint64_t{piece.first} + (uint64_t{n_groups} - 1) * piece.step;
    const uint64_t end = last + piece.width;
    require(in.rows == rows && piece.width >= 1 && end <= in.cols,
            "gather_columns: a piece ends at column ", end, " of a value with ", in.cols,
            "; it must have columns, and the rows of the first");
    require(std::isfinite(piece.scale), "gather_columns: a scale is ", piece.scale);
  }
  return add(op, rows, op.group_cols() * n_groups);
}

ValueId Recorder::permute_columns(ValueId x, ValueId route, WeightRef order) {
  check_open();
  const Value in = use("permute_columns", "x", x);
  const uint64_t cols = order->cols, n_experts = order->rows;
  if (route == 0) {
    require(n_experts == 1 && in.cols == cols, "permute_columns: x has ", in.cols,
            " columns; the order is of ", cols, " for ", n_experts, " experts, without a route");
    return add(PermuteColumnsOp{x, 0, std::move(order), 0}, in.rows, cols);
  }
  const Value chosen = use("permute_columns", "route", route);
  const uint64_t top_k = chosen.cols / 2;
  require(chosen.n_experts == n_experts, "permute_columns: route is ",
          chosen.n_experts == 0 ? "no moe_route value" : "over another number of experts",
          "; expected ", n_experts, " experts");
  require(in.rows == chosen.rows && (in.cols == cols || in.cols == top_k * cols),
          "permute_columns: x has ", in.cols, " columns; expected ", cols, " or ", top_k * cols,
          ", and the rows of route");
  return add(PermuteColumnsOp{x, route, std::move(order), 0}, in.rows, top_k * cols);
}

ValueId Recorder::moe_route(ValueId logits, Routing routing) {
  check_open();
  const Value in = use("moe_route", "logits", logits);
  const uint32_t top_k = routing.top_k;
  const uint32_t n_groups = routing.n_groups, top_groups = routing.top_groups;
  require(top_k >= 1 && top_k <= in.cols && top_k <= 64, "moe_route: top_k is ", top_k,
          "; valid is 1 to ", std::min<uint64_t>(in.cols, 64));
  require(in.cols <= 4096, "moe_route: ", in.cols, " experts; at most 4096 are supported");
  require(routing.scores <= FORGE_SCORES_SIGMOID, "moe_route: unknown scores ", routing.scores);
  check_vector("moe_route", "bias", routing.bias, in.cols);
  check_vector("moe_route", "expert_scales", routing.expert_scales, in.cols);
  require(n_groups >= 1 && n_groups <= 32 && in.cols % n_groups == 0, "moe_route: ", n_groups,
          " groups of ", in.cols, " experts; valid is a divisor of up to 32");
  require(top_groups >= 1 && top_groups <= n_groups && top_k <= in.cols / n_groups * top_groups,
          "moe_route: ", top_k, " experts of ", top_groups, " of ", n_groups, " groups of ",
          in.cols / n_groups);
  const uint64_t cols = 2ull * top_k;
  const ValueId out = add(MoeRouteOp{logits, std::move(routing), 0}, in.rows, cols);
  program_->values[out - 1].n_experts = static_cast<uint32_t>(in.cols);
  return out;
}

ValueId Recorder::moe_matmul(ValueId x, ValueId route, WeightRef weight, WeightRef bias,
                             uint32_t n_experts) {
  check_open();
  const Value in = use("moe_matmul", "x", x);
  const Value chosen = use("moe_matmul", "route", route);
  const uint64_t top_k = chosen.cols / 2;
  require(n_experts >= 1 && chosen.n_experts == n_experts, "moe_matmul: route is ",
          chosen.n_experts == 0 ? "no moe_route value" : "over another number of experts", "; expected ",
          n_experts, " experts");
  require(weight->rows % n_experts == 0, "moe_matmul: ", weight->rows, " rows are not ", n_experts,
          " experts of equal size");
  require(in.rows == chosen.rows && (in.cols == weight->cols || in.cols == top_k * weight->cols),
          "moe_matmul: x has ", in.cols, " columns; expected ", weight->cols, " or ",
          top_k * weight->cols);
  const uint64_t expert_rows = weight->rows / n_experts;
  if (bias) {
    require(bias->rows == n_experts && bias->cols == expert_rows, "moe_matmul: bias is [",
            bias->rows, ", ", bias->cols, "]; expected [", n_experts, ", ", expert_rows, "]");
  }
  return add(MoeMatmulOp{x, route, std::move(weight), std::move(bias), n_experts, 0}, in.rows,
             top_k * expert_rows);
}

ValueId Recorder::moe_combine(ValueId x, ValueId route, ValueId residual) {
  check_open();
  const Value in = use("moe_combine", "x", x);
  const Value chosen = use("moe_combine", "route", route);
  require(chosen.n_experts != 0, "moe_combine: route is no moe_route value");
  const uint64_t top_k = chosen.cols / 2;
  require(in.rows == chosen.rows && in.cols % top_k == 0, "moe_combine: x has ", in.cols,
          " columns for ", top_k, " experts");
  check_residual("moe_combine", residual, in.rows, in.cols / top_k);
  return add(MoeCombineOp{x, route, residual, 0}, in.rows, in.cols / top_k);
}

ValueId Recorder::gather_outputs(ValueId x) {
  check_open();
  const Value in = use("gather_outputs", "x", x);
  require(in.rows == Rows::tokens, "gather_outputs: x has outputs for rows already");
  return add(GatherOutputsOp{x, 0}, Rows::outputs, in.cols);
}

ValueId Recorder::softcap(ValueId x, float cap) {
  check_open();
  const Value in = use("softcap", "x", x);
  require(cap > 0 && std::isfinite(cap), "softcap: cap is ", cap, "; valid is a finite number > 0");
  return add(SoftcapOp{x, cap, 0}, in.rows, in.cols);
}

ValueId Recorder::clamp(ValueId x, float limit) {
  check_open();
  const Value in = use("clamp", "x", x);
  require(limit > 0 && std::isfinite(limit), "clamp: limit is ", limit, "; valid is a finite number > 0");
  return add(ClampOp{x, limit, 0}, in.rows, in.cols);
}

void Recorder::sample(ValueId logits, uint32_t max_top) {
  check_open();
  const Value& in = use("sample", "logits", logits);
  require(in.rows == Rows::outputs, "sample: logits must have outputs for rows");
  require(max_top <= in.cols, "sample: max_top is ", max_top, " of ", in.cols, " logits");
  program_->samples = true;
  program_->logits_cols = in.cols;
  program_->max_top = max_top;
  program_->ops.emplace_back(SampleOp{logits, max_top});
}

void Recorder::keep(ValueId value) {
  require(!finished_, "step: recording has ended");
  use("keep", "value", value);
  program_->values[value - 1].keep = true;
}

std::shared_ptr<const Program> Recorder::finish() {
  require(!finished_, "step: recording has ended already");
  require(!program_->ops.empty(), "step: nothing was recorded");
  finished_ = true;
  return program_;
}

}  // namespace forge
