#pragma once

// The table of operations that steps are recorded in. Each operation is one struct that names its
// formula, its operands in the order in which forge_record takes them, and what its operands must
// satisfy. Everything else follows from the table: the names that TypeScript records by
// (forge_operations), decoding (recorder.cpp), the values that an operation reads, and the
// declarations of every executor and planner (FORGE_OPERATIONS), so that a backend that lacks one
// does not build.
//
// Values are matrices of float32 whose rows are the step's tokens or its outputs; a weight is
// [rows, cols] = [out_features, in_features].

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <variant>

#include "../forge.h"
#include "backend.h"
#include "error.h"

namespace forge {

enum class Rows : uint8_t { tokens, outputs };

// A value's number in its step, from 1; 0 is none.
using ValueId = uint32_t;

struct Value {
  Rows rows;
  uint64_t cols;
  bool keep = false;
  uint32_t n_experts = 0;  // of a moe_route: its expert numbers are below this
};

using WeightRef = std::shared_ptr<const Weight>;
using KvRef = std::shared_ptr<KvCache>;
using StateRef = std::shared_ptr<StateCache>;

// Kinds of operands; the type of a field is its kind.

struct Input {
  ValueId id = 0;
  operator ValueId() const { return id; }
};
struct OptionalInput : Input {};

// A weight that products multiply by, each row in its own type.
struct Matrix : WeightRef {
  using WeightRef::operator=;
};
// A weight whose rows are looked up or grouped: a device may need all of them in one type.
struct UniformMatrix : Matrix {
  using WeightRef::operator=;
};
// A weight that is read as floats: norms, biases, frequencies.
struct Floats : WeightRef {
  using WeightRef::operator=;
};
struct OptionalFloats : Floats {
  using WeightRef::operator=;
};

// A weight of column numbers: whole numbers from 0 to below its columns, at most 2^24 of them,
// which F32 holds exactly. Checked when an operation takes it.
struct ColumnOrder : Floats {
  using WeightRef::operator=;
};

// The ranks of low-rank adapters, [ranks, 3]: for each its adapter, and the first column and number
// of columns that it adds to. Whole numbers, checked when an operation takes them.
struct AdapterRanks : Floats {
  using WeightRef::operator=;
  uint64_t n_adapters = 0;  // above every adapter
  uint64_t end = 0;         // above every column
  uint64_t width = 0;       // the largest number of columns
};

// Columns [first + g * step, first + g * step + width) of a value, times scale, for group g of
// gather_columns.
struct Piece {
  ValueId value = 0;  // 0: an unused piece, whose width is 0
  uint32_t width = 0;
  uint32_t first = 0;
  uint32_t step = 0;
  float scale = 0;
};
constexpr size_t kMaxPieces = 3;
using Pieces = std::array<Piece, kMaxPieces>;

// Number of values that an operand names.
template <class Operand>
constexpr size_t kValuesIn = std::is_base_of_v<Input, Operand>    ? 1
                             : std::is_same_v<Pieces, Operand> ? kMaxPieces
                                                                : 0;

// Returns the values that operands read, 0 for a missing optional one.
template <class... Operands>
auto values_read(const Operands&... operands) {
  std::array<ValueId, (kValuesIn<Operands> + ... + 0)> values{};
  size_t n = 0;
  const auto add = [&](const auto& operand) {
    using Operand = std::remove_cvref_t<decltype(operand)>;
    if constexpr (std::is_base_of_v<Input, Operand>) values[n++] = operand;
    if constexpr (std::is_same_v<Pieces, Operand>) {
      for (const Piece& piece : operand) values[n++] = piece.value;
    }
  };
  (add(operands), ...);
  return values;
}

// Declares the name of an operation and its operands, in the order of forge_record.
#define FORGE_OPERANDS(name, ...)                            \
  static constexpr const char* kName = name;                 \
  static constexpr const char* kOperandNames = #__VA_ARGS__; \
  ValueId out = 0;                                           \
  template <class Use>                                       \
  auto with_operands(Use&& use) {                            \
    return use(__VA_ARGS__);                                 \
  }                                                          \
  template <class Use>                                       \
  auto with_operands(Use&& use) const {                      \
    return use(__VA_ARGS__);                                 \
  }                                                          \
  auto reads() const { return values_read(__VA_ARGS__); }

// The shape of a result; a row count of no columns means that an operation has none.
struct Shape {
  Rows rows = Rows::tokens;
  uint64_t cols = 0;
  uint32_t n_experts = 0;  // as in Value
};

// The checks of an operation; every message begins with the operation's name.
class OperationChecks {
 public:
  OperationChecks(const char* name, std::span<const Value> values) : name_(name), values_(values) {}

  template <class... Parts>
  void expect(bool condition, const Parts&... parts) const {
    require(condition, name_, ": ", parts...);
  }

  const Value& value(const char* role, ValueId id) const {
    expect(id >= 1 && id <= values_.size(), role, " is ", id, ", which is no value of this step");
    return values_[id - 1];
  }

  void vector(const char* role, const WeightRef& weight, uint64_t cols) const {
    if (!weight) return;
    expect(weight->rows == 1 && weight->cols == cols, role, " is [", weight->rows, ", ",
           weight->cols, "]; expected [1, ", cols, "]");
  }

  // A weight for groups of as many columns as it has: one row for all groups, or a row for each.
  void group_weight(const char* role, const WeightRef& weight, uint64_t cols) const {
    expect(cols % weight->cols == 0 && (weight->rows == 1 || weight->rows * weight->cols == cols),
           role, " is [", weight->rows, ", ", weight->cols, "]; expected [1, ", cols,
           "], a divisor of these columns, or a row for each group of them");
  }

  void residual(ValueId id, Rows rows, uint64_t cols) const {
    if (id == 0) return;
    const Value& in = value("residual", id);
    expect(in.rows == rows && in.cols == cols, "residual has ", in.cols, " columns; expected ",
           cols, " and the rows of the result");
  }

  void activation(uint32_t number) const {
    expect(number <= FORGE_GELU_ERF || number == FORGE_RELU_SQUARED, "unknown activation ", number);
  }

  void heads(uint32_t n_heads, uint32_t n_kv_heads) const {
    expect(n_heads >= 1 && n_heads % n_kv_heads == 0, n_heads, " heads are no multiple of ",
           n_kv_heads, " kv heads");
  }

  void state(const StateRef& state, uint64_t rows, uint64_t cols) const {
    const StateShape& shape = state->shape;
    expect(shape.rows == rows && shape.cols == cols, "state is [", shape.rows, ", ", shape.cols,
           "]; expected [", rows, ", ", cols, "]");
  }

 private:
  const char* name_;
  std::span<const Value> values_;
};

// out[tokens, cols] = scale * weight[token id % weight.rows]. Token ids exceed the rows only in a
// step with token types: see AddEmbeddingOp.
struct EmbedOp {
  UniformMatrix weight;
  float scale = 1;
  FORGE_OPERANDS("embed", weight, scale)

  Shape check(const OperationChecks&) const { return {Rows::tokens, weight->cols}; }
};

// out[tokens, cols] = x + weight[token id / period], the embedding of a token's type, whose ids
// have the type times the rows of the embedding of tokens, `period`, added. Or x + weight[position]
// if period is 0.
struct AddEmbeddingOp {
  Input x;
  UniformMatrix weight;
  uint32_t period = 0;
  FORGE_OPERANDS("add_embedding", x, weight, period)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("x", x);
    c.expect(in.rows == Rows::tokens && in.cols == weight->cols, "x has ", in.cols,
             " columns; expected the ", weight->cols, " of the weight, for each token");
    return {in.rows, in.cols};
  }
};

// out = residual + x / sqrt(mean(x^2) + eps) * (weight + weight_offset), the mean over each group
// of as many columns as the weight has. All groups share one row of the weight, or each has its
// own.
struct RmsNormOp {
  Input x;
  Floats weight;
  float eps = 0, weight_offset = 0;
  OptionalInput residual;
  FORGE_OPERANDS("rms_norm", x, weight, eps, weight_offset, residual)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("x", x);
    c.group_weight("weight", weight, in.cols);
    c.residual(residual, in.rows, in.cols);
    return {in.rows, in.cols};
  }
};

// out = (x - mean) / sqrt(variance + eps) * weight + bias.
struct LayerNormOp {
  Input x;
  Floats weight;
  OptionalFloats bias;
  float eps = 0;
  FORGE_OPERANDS("layer_norm", x, weight, bias, eps)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("x", x);
    c.vector("weight", weight, in.cols);
    c.vector("bias", bias, in.cols);
    return {in.rows, in.cols};
  }
};

// out[rows, weight.rows] = residual + alpha * activation(x weight^T + bias). bias is
// [1, weight.rows].
struct MatmulOp {
  Input x;
  Matrix weight;
  OptionalFloats bias;
  float alpha = 1;
  uint32_t activation = FORGE_IDENTITY;
  OptionalInput residual;
  FORGE_OPERANDS("matmul", x, weight, bias, alpha, activation, residual)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("x", x);
    c.expect(weight->cols == in.cols, "x has ", in.cols, " columns, the weight ", weight->cols);
    c.vector("bias", bias, weight->rows);
    c.activation(activation);
    c.residual(residual, in.rows, weight->rows);
    return {in.rows, weight->rows};
  }
};

// One product for each head: x is [rows, n_heads * weight.cols], the weight's rows are n_heads
// equal blocks, and a head's columns of out[rows, weight.rows] are its columns of x times its block
// transposed.
struct HeadMatmulOp {
  Input x;
  UniformMatrix weight;
  uint32_t n_heads = 0;
  FORGE_OPERANDS("head_matmul", x, weight, n_heads)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("x", x);
    c.expect(n_heads >= 1 && n_heads <= 4096, n_heads, " heads; valid is 1 to 4096");
    c.expect(weight->rows % n_heads == 0, weight->rows, " rows are not ", n_heads,
             " heads of equal size");
    c.expect(in.cols == n_heads * weight->cols, "x has ", in.cols, " columns; expected ", n_heads,
             " heads of ", weight->cols);
    return {in.rows, weight->rows};
  }
};

// The most ranks of all adapters of a product.
constexpr uint64_t kMostAdapterRanks = 1u << 16;

// The result y of a product with x, corrected by low-rank adapters (LoRA, arXiv 2106.09685):
//
//   out = residual + alpha * activation(y + sum over ranks r of s_r (a_r x) b_r)
//
// a is [ranks, cols of x]. b_r is added to the columns of rank r: it is the beginning of row r of
// b. s_r is the scale of the adapter of the rank for the sequence of the row (adapter_scales of a
// run). Ranks of adapters whose scale is 0 are not computed. All operations of a step have as many
// adapters.
//
// A product with n_blocks blocks of a weight has several results a row, each with a correction of
// its own: y is [rows, results * cols], x [rows, cols of a] for all of them or [rows, results *
// cols of a]. Result k is of block route[row][k] (experts), or without a route of block k (heads).
// a and b hold the ranks of each block, block after block, or those that all blocks share.
struct LoraOp {
  Input y, x;
  OptionalInput route;
  Floats a, b;
  AdapterRanks ranks;
  uint32_t n_adapters = 0;
  uint32_t n_blocks = 1;
  float alpha = 1;
  uint32_t activation = FORGE_IDENTITY;
  OptionalInput residual;
  FORGE_OPERANDS("lora", y, x, route, a, b, ranks, n_adapters, n_blocks, alpha, activation,
                 residual)

  // Rows of a and of b from a block to the next one; 0 if all blocks share them.
  uint32_t a_step() const { return step(a); }
  uint32_t b_step() const { return step(b); }

  Shape check(const OperationChecks& c) const {
    const Value &product = c.value("y", y), &in = c.value("x", x);
    const uint64_t n = ranks->rows;
    uint64_t n_results = n_blocks;
    c.expect(n_blocks >= 1 && n_blocks <= 4096, n_blocks, " blocks; valid is 1 to 4096");
    if (route != 0) {
      const Value& chosen = c.value("route", route);
      c.expect(chosen.n_experts == n_blocks && chosen.rows == in.rows, "route is ",
               chosen.n_experts == 0 ? "no moe_route value" : "over other experts or rows",
               "; expected ", n_blocks, " experts, and the rows of x");
      n_results = chosen.cols / 2;
    }
    c.expect(in.rows == product.rows, "x and y must have the same rows");
    c.expect(in.cols == a->cols || in.cols == n_results * a->cols, "x has ", in.cols,
             " columns, a ", a->cols);
    c.expect(product.cols % n_results == 0, "y has ", product.cols, " columns for ", n_results,
             " blocks");
    c.expect(n <= kMostAdapterRanks, n, " ranks; valid is up to ", kMostAdapterRanks);
    c.expect(has_ranks(a) && has_ranks(b), "a has ", a->rows, " ranks, b ", b->rows, ", ranks ", n,
             " for ", n_blocks, " blocks");
    c.expect(ranks.n_adapters <= n_adapters, "a rank is of adapter ", ranks.n_adapters - 1, " of ",
             n_adapters);
    c.expect(ranks.end <= product.cols / n_results, "a rank ends at column ", ranks.end, " of ",
             product.cols / n_results);
    c.expect(ranks.width <= b->cols, "a rank has ", ranks.width, " columns; b has ", b->cols);
    c.activation(activation);
    c.residual(residual, product.rows, product.cols);
    return {product.rows, product.cols};
  }

 private:
  uint32_t step(const WeightRef& weight) const {
    return weight->rows == ranks->rows ? 0 : static_cast<uint32_t>(ranks->rows);
  }
  bool has_ranks(const WeightRef& weight) const {
    return weight->rows == ranks->rows || weight->rows == n_blocks * ranks->rows;
  }
};

// out[tokens, 2 n] = scale * (cos | sin) of position * inv_freq, for the n frequencies of
// inv_freq[1, n]. Computed once a step and shared by the layers that rotate alike.
struct RopeTableOp {
  Floats inv_freq;
  float scale = 1;
  FORGE_OPERANDS("rope_table", inv_freq, scale)

  Shape check(const OperationChecks& c) const {
    c.vector("inv_freq", inv_freq, inv_freq->cols);
    return {Rows::tokens, 2 * inv_freq->cols};
  }
};

// Splits qkv[tokens, q heads | k heads | v heads], normalises and rotates q and k, appends k and v
// to the cache at each token's position, and returns q[tokens, n_heads * k_head_dim]. q_norm and
// k_norm are RMSNorm weights, per head when as wide as a head, else over all heads at once. `rope`
// is a rope_table value, whose 2 n columns rotate the first 2 n elements of each head. Where values
// are in the keys, qkv is [tokens, q heads | k heads] and the last 2 n elements are rotated, which
// must not be values.
struct RopeAppendOp {
  Input qkv;
  KvRef kv;
  uint32_t n_heads = 0;
  OptionalFloats q_norm, k_norm;
  float eps = 0, weight_offset = 0;
  OptionalInput rope;
  uint32_t rope_layout = FORGE_ROPE_HALF;
  FORGE_OPERANDS("rope_append", qkv, kv, n_heads, q_norm, k_norm, eps, weight_offset, rope,
                 rope_layout)

  // The first rotated element of a head, where n of them are.
  uint32_t first_rotated(uint64_t n) const {
    return kv->shape.values_in_keys ? kv->shape.k_head_dim - static_cast<uint32_t>(n) : 0;
  }

  Shape check(const OperationChecks& c) const {
    const KvShape& shape = kv->shape;
    const Value& in = c.value("qkv", qkv);
    c.heads(n_heads, shape.n_kv_heads);
    const uint64_t q_cols = uint64_t{n_heads} * shape.k_head_dim;
    const uint64_t k_cols = uint64_t{shape.n_kv_heads} * shape.k_head_dim;
    const uint64_t v_cols =
        shape.values_in_keys ? 0 : uint64_t{shape.n_kv_heads} * shape.v_head_dim;
    c.expect(in.rows == Rows::tokens && in.cols == q_cols + k_cols + v_cols, "qkv has ", in.cols,
             " columns; expected ", q_cols + k_cols + v_cols, " (", q_cols, " + ", k_cols, " + ",
             v_cols, ")");
    check_norm(c, "q_norm", q_norm, q_cols);
    check_norm(c, "k_norm", k_norm, k_cols);
    if (rope != 0) {
      const Value& table = c.value("rope", rope);
      c.expect(table.rows == Rows::tokens && table.cols % 2 == 0 && table.cols <= shape.k_head_dim,
               "the rope table rotates ", table.cols, " elements of heads of ", shape.k_head_dim);
      c.expect(!shape.values_in_keys || table.cols <= shape.k_head_dim - shape.v_head_dim,
               "the rope table rotates ", table.cols, " elements of heads of ", shape.k_head_dim,
               ", of which the first ", shape.v_head_dim, " are values");
    }
    c.expect(rope_layout <= FORGE_ROPE_INTERLEAVED, "unknown rope layout ", rope_layout);
    return {Rows::tokens, q_cols};
  }

 private:
  void check_norm(const OperationChecks& c, const char* role, const WeightRef& weight,
                  uint64_t all_heads) const {
    const uint32_t head = kv->shape.k_head_dim;
    if (!weight) return;
    c.expect(weight->rows == 1 && (weight->cols == head || weight->cols == all_heads), role,
             " is [", weight->rows, ", ", weight->cols, "]; expected [1, ", head, "] or [1, ",
             all_heads, "]");
  }
};

// Attention of q[tokens, n_heads * k_head_dim] over the pages of each token's own sequence: scores
// are scale * q k, softcap * tanh(score / softcap) when softcap > 0, plus the step's attention mask
// if `masked`. A token sees the positions up to its own, the last `window` of them when window > 0.
// Without `causal` it sees all key_lengths positions of its sequence, those less than `window` from
// its own when window > 0. sinks[1, n_heads] are logits that take part in the softmax and carry no
// value. With `chunked` a token sees the positions up to its own in its chunk: positions are
// divided into chunks of `window`. out[tokens, n_heads * v_head_dim], zeros for a token that sees
// nothing.
struct AttentionOp {
  Input q;
  KvRef kv;
  uint32_t n_heads = 0;
  float scale = 1;
  uint32_t window = 0;
  float softcap = 0;
  OptionalFloats sinks;
  bool causal = true;
  bool masked = false;
  bool chunked = false;
  FORGE_OPERANDS("attention", q, kv, n_heads, scale, window, softcap, sinks, causal, masked,
                 chunked)

  Shape check(const OperationChecks& c) const {
    const KvShape& shape = kv->shape;
    const Value& in = c.value("q", q);
    c.heads(n_heads, shape.n_kv_heads);
    c.expect(in.rows == Rows::tokens && in.cols == uint64_t{n_heads} * shape.k_head_dim, "q has ",
             in.cols, " columns; expected ", n_heads, " heads of ", shape.k_head_dim);
    c.expect(softcap >= 0 && std::isfinite(softcap), "softcap is ", softcap,
             "; valid is a finite number >= 0");
    c.vector("sinks", sinks, n_heads);
    c.expect(!chunked || (causal && window > 0), "chunks need a window and causality");
    return {Rows::tokens, uint64_t{n_heads} * shape.v_head_dim};
  }
};

// Keeps a row of each token in the keys of a cache whose values are in its keys. Stores x, if
// given, at the position of each token; then out[tokens, n_kv_heads * k_head_dim] is the row stored
// at the position before, zeros at position 0. The tokens of a sequence are consecutive.
struct PreviousRowsOp {
  OptionalInput x;
  KvRef kv;
  FORGE_OPERANDS("previous_rows", x, kv)

  Shape check(const OperationChecks& c) const {
    const KvShape& shape = kv->shape;
    const uint64_t cols = uint64_t{shape.n_kv_heads} * shape.k_head_dim;
    c.expect(shape.values_in_keys, "the cache has values apart from its keys");
    c.expect(shape.type != WeightType::Q8_0 && shape.type != WeightType::Q4_0,
             "the cache is quantised; valid are F32, F16 and BF16");
    if (x != 0) {
      const Value& in = c.value("x", x);
      c.expect(in.rows == Rows::tokens && in.cols == cols, "x has ", in.cols, " columns; expected ",
               cols, ", for each token");
    }
    return {Rows::tokens, cols};
  }
};

// x is groups of (gate[width] | up[width]); out is groups of the gated unit of both:
// activation(gate) * up, or FORGE_CLAMPED_SWIGLU.
struct GluOp {
  Input x;
  uint32_t width = 0;
  uint32_t unit = 0;
  FORGE_OPERANDS("glu", x, width, unit)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("x", x);
    c.expect(width >= 1 && in.cols % (2 * uint64_t{width}) == 0, "x has ", in.cols,
             " columns, which are no groups of twice ", width);
    c.expect(unit <= FORGE_RELU_SQUARED, "unknown unit ", unit);
    return {in.rows, in.cols / 2};
  }
};

// out = residual + sigmoid(gate) * x; a column of gate applies to as many neighbouring columns of
// x.
struct SigmoidGateOp {
  Input x, gate;
  OptionalInput residual;
  FORGE_OPERANDS("sigmoid_gate", x, gate, residual)

  Shape check(const OperationChecks& c) const {
    const Value &in = c.value("x", x), &by = c.value("gate", gate);
    c.expect(by.rows == in.rows && in.cols % by.cols == 0, "gate has ", by.cols,
             " columns; expected the rows of x and a divisor of its ", in.cols, " columns");
    c.residual(residual, in.rows, in.cols);
    return {in.rows, in.cols};
  }
};

// out = x / sqrt(mean(x^2) + eps) * weight * activation(gate), with groups as in rms_norm.
struct GatedRmsNormOp {
  Input x, gate;
  Floats weight;
  float eps = 0;
  uint32_t activation = FORGE_IDENTITY;
  FORGE_OPERANDS("gated_rms_norm", x, gate, weight, eps, activation)

  Shape check(const OperationChecks& c) const {
    const Value &in = c.value("x", x), &by = c.value("gate", gate);
    c.expect(by.rows == in.rows && by.cols == in.cols, "gate has ", by.cols, " columns; expected ",
             in.cols, " and the rows of x");
    c.group_weight("weight", weight, in.cols);
    c.activation(activation);
    return {in.rows, in.cols};
  }
};

// The widest convolution: far above any model's.
constexpr uint32_t kMostConvWidth = 64;

// Causal depthwise convolution over the tokens of each sequence, with weight[cols, width]:
// out[t][c] = activation(bias[c] + sum over i of weight[c][i] x[t - (width - 1) + i][c]). Rows from
// before the run come from the sequence's slot of `state`, [width - 1, cols], which then keeps the
// last width - 1 rows; rows from before the sequence are zero.
struct CausalConv1dOp {
  Input x;
  Floats weight;
  OptionalFloats bias;
  StateRef state;
  uint32_t activation = FORGE_IDENTITY;
  FORGE_OPERANDS("causal_conv1d", x, weight, bias, state, activation)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("x", x);
    c.expect(in.rows == Rows::tokens, "x must have tokens for rows");
    c.expect(weight->rows == in.cols, "the weight has ", weight->rows, " rows, x has ", in.cols,
             " columns");
    c.expect(weight->cols >= 2 && weight->cols <= kMostConvWidth, "the weight is ", weight->cols,
             " tokens wide; valid is 2 to ", kMostConvWidth);
    c.vector("bias", bias, in.cols);
    c.activation(activation);
    c.state(state, weight->cols - 1, in.cols);
    return {in.rows, in.cols};
  }
};

// Linear attention by the gated delta rule (Gated DeltaNet, arXiv 2412.06464). For each token of a
// sequence in turn and each value head, with q and k of its key head and S, [k_dim, v_dim], its
// part of the sequence's slot of `state`:
//
//   q = scale q / sqrt(sum(q^2) + eps), k = k / sqrt(sum(k^2) + eps)
//   beta = sigmoid(b), decay = exp(rate * log(1 + exp(a + dt_bias)))
//   S = decay S
//   S = S + k (beta (v - k S))
//   out = q S
//
// qkv[tokens, k_dim of each key head (q) | k_dim of each key head (k) | v_dim of each value head];
// ba[tokens, b of each value head | a of each value head]; rate (negative) and dt_bias are
// [1, n_v_heads]; state is [n_v_heads * k_dim, v_dim], float32, zero where a sequence begins.
// out[tokens, n_v_heads * v_dim].
struct GatedDeltaRuleOp {
  Input qkv, ba;
  Floats rate, dt_bias;
  StateRef state;
  uint32_t n_k_heads = 0;
  uint32_t head_order = FORGE_HEADS_GROUPED;
  float scale = 1, eps = 0;
  FORGE_OPERANDS("gated_delta_rule", qkv, ba, rate, dt_bias, state, n_k_heads, head_order, scale,
                 eps)

  uint32_t n_v_heads() const { return static_cast<uint32_t>(rate->cols); }
  uint32_t k_dim() const { return state->shape.rows / n_v_heads(); }
  uint32_t v_dim() const { return state->shape.cols; }
  // The key head that a value head reads.
  uint32_t key_head(uint32_t value_head) const {
    return head_order == FORGE_HEADS_TILED ? value_head % n_k_heads
                                           : value_head / (n_v_heads() / n_k_heads);
  }

  Shape check(const OperationChecks& c) const {
    const Value &in = c.value("qkv", qkv), &gates = c.value("ba", ba);
    c.expect(in.rows == Rows::tokens && gates.rows == Rows::tokens,
             "qkv and ba must have tokens for rows");
    c.expect(rate->rows == 1, "rate has ", rate->rows, " rows; expected 1");
    const uint64_t value_heads = rate->cols;
    c.vector("dt_bias", dt_bias, value_heads);
    c.expect(gates.cols == 2 * value_heads, "ba has ", gates.cols, " columns; expected ",
             2 * value_heads, ", two for each value head");
    c.expect(n_k_heads >= 1 && value_heads % n_k_heads == 0, value_heads,
             " value heads are no multiple of ", n_k_heads, " key heads");
    c.expect(state->shape.rows % value_heads == 0, "a state of ", state->shape.rows,
             " rows is not for ", value_heads, " value heads");
    const uint64_t cols = 2 * uint64_t{n_k_heads} * k_dim() + value_heads * v_dim();
    c.expect(in.cols == cols, "qkv has ", in.cols, " columns; the state implies ", cols);
    c.expect(head_order <= FORGE_HEADS_TILED, "unknown head order ", head_order);
    c.expect(std::isfinite(scale) && eps >= 0, "scale is ", scale, ", eps ", eps,
             "; valid are finite numbers, eps >= 0");
    return {Rows::tokens, value_heads * v_dim()};
  }
};

// The scan of a selective state space with a scalar decay for each head (Mamba-2, arXiv
// 2405.21060). For each token of a sequence in turn and each head, with b and c of its group
// (neighbouring heads share one) and S, [d_state, head_dim], its part of the sequence's slot of
// `state`:
//
//   dt = log(1 + exp(dt + dt_bias)) held within dt_min and dt_max, decay = exp(rate dt)
//   S = decay S + b (dt x)
//   out = (c S + skip x) silu(gate)
//
// xbc[tokens, head_dim of each head (x) | d_state of each group (b) | d_state of each group (c)];
// dt[tokens, n_heads]; rate (negative), dt_bias and skip are [1, n_heads]; gate, of the shape of
// the result, is optional; state is [n_heads * d_state, head_dim], float32, zero where a sequence
// begins. out[tokens, n_heads * head_dim].
struct SelectiveScanOp {
  Input xbc, dt;
  OptionalInput gate;
  Floats rate, dt_bias, skip;
  StateRef state;
  uint32_t n_groups = 0;
  float dt_min = 0, dt_max = 0;
  FORGE_OPERANDS("selective_scan", xbc, dt, gate, rate, dt_bias, skip, state, n_groups, dt_min,
                 dt_max)

  uint32_t n_heads() const { return static_cast<uint32_t>(rate->cols); }
  uint32_t d_state() const { return state->shape.rows / n_heads(); }
  uint32_t head_dim() const { return state->shape.cols; }
  uint32_t group_of(uint32_t head) const { return head / (n_heads() / n_groups); }

  Shape check(const OperationChecks& c) const {
    const Value &in = c.value("xbc", xbc), &steps = c.value("dt", dt);
    c.expect(in.rows == Rows::tokens && steps.rows == Rows::tokens,
             "xbc and dt must have tokens for rows");
    c.expect(rate->rows == 1, "rate has ", rate->rows, " rows; expected 1");
    const uint64_t heads = rate->cols;
    c.vector("dt_bias", dt_bias, heads);
    c.vector("skip", skip, heads);
    c.expect(steps.cols == heads, "dt has ", steps.cols, " columns; expected ", heads,
             ", one for each head");
    c.expect(n_groups >= 1 && heads % n_groups == 0, heads, " heads are no multiple of ", n_groups,
             " groups");
    c.expect(state->shape.rows % heads == 0, "a state of ", state->shape.rows, " rows is not for ",
             heads, " heads");
    const uint64_t inner = heads * head_dim(), cols = inner + 2 * uint64_t{n_groups} * d_state();
    c.expect(in.cols == cols, "xbc has ", in.cols, " columns; the state implies ", cols);
    if (gate != 0) {
      const Value& by = c.value("gate", gate);
      c.expect(by.rows == Rows::tokens && by.cols == inner, "gate has ", by.cols,
               " columns; expected ", inner, " for each token");
    }
    c.expect(dt_min >= 0 && dt_min <= dt_max, "dt is held within ", dt_min, " and ", dt_max,
             "; valid are numbers from 0 in their order");
    return {Rows::tokens, inner};
  }
};

// out is n_groups groups of columns; group g is the columns of each piece for g, one piece after
// another. All values have the same rows.
struct GatherColumnsOp {
  Pieces pieces{};
  uint32_t n_groups = 1;
  FORGE_OPERANDS("gather_columns", pieces, n_groups)

  uint64_t group_cols() const {
    return uint64_t{pieces[0].width} + pieces[1].width + pieces[2].width;
  }

  Shape check(const OperationChecks& c) const {
    c.expect(n_groups >= 1 && n_groups <= 1u << 28, n_groups, " groups; valid is 1 to ", 1u << 28);
    const Rows rows = c.value("value", pieces[0].value).rows;
    for (const Piece& piece : pieces) {
      if (&piece != &pieces[0] && piece.value == 0 && piece.width == 0) continue;
      const Value& in = c.value("value", piece.value);
      const uint64_t end =
          uint64_t{piece.first} + (uint64_t{n_groups} - 1) * piece.step + piece.width;
      c.expect(in.rows == rows && piece.width >= 1 && end <= in.cols, "a piece ends at column ",
               end, " of a value with ", in.cols,
               "; it must have columns, and the rows of the first");
      c.expect(std::isfinite(piece.scale), "a scale is ", piece.scale);
    }
    return {rows, group_cols() * n_groups};
  }
};

// out = the columns of x in another order: column i is column order[i] of x. `order` is [n_experts,
// cols]. Without `route` n_experts is 1, x is [tokens, cols], and so is out. With it x is [tokens,
// cols] or [tokens, top_k * cols], and out[tokens, top_k * cols] holds the columns for each chosen
// expert in its own order. Products with weights whose columns are in such an order need it.
struct PermuteColumnsOp {
  Input x;
  OptionalInput route;
  ColumnOrder order;
  FORGE_OPERANDS("permute_columns", x, route, order)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("x", x);
    const uint64_t cols = order->cols, n_experts = order->rows;
    if (route == 0) {
      c.expect(n_experts == 1 && in.cols == cols, "x has ", in.cols, " columns; the order is of ",
               cols, " for ", n_experts, " experts, without a route");
      return {in.rows, cols};
    }
    const Value& chosen = c.value("route", route);
    const uint64_t top_k = chosen.cols / 2;
    c.expect(chosen.n_experts == n_experts, "route is ",
             chosen.n_experts == 0 ? "no moe_route value" : "over another number of experts",
             "; expected ", n_experts, " experts");
    c.expect(in.rows == chosen.rows && (in.cols == cols || in.cols == top_k * cols), "x has ",
             in.cols, " columns; expected ", cols, " or ", top_k * cols, ", and the rows of route");
    return {in.rows, top_k * cols};
  }
};

// Chooses top_k experts a token from router logits[rows, n_experts] by score (ties to the lower
// expert), or with bias[1, n_experts] by score + bias. The weight of a chosen expert is its score
// without bias, over the sum of the chosen ones when `normalize`, times scale, times its own factor
// of expert_scales[1, n_experts].
//
// Of n_groups groups of neighbouring experts only the best top_groups take part (all where both are
// 1): those with the largest score, or with bias the largest sum of their two largest.
//
// With FORGE_SCORES_SPARSEMIXER the score of each chosen expert is its probability among the
// experts not chosen before it, without those whose logit is below its own by more than threshold *
// max(|their logit|, its logit) (arXiv:2409.12136). There is no bias, and one group.
//
// out[rows, 2 top_k] holds expert numbers, then weights; only moe operations read it.
struct MoeRouteOp {
  Input logits;
  uint32_t top_k = 1;
  bool normalize = false;
  float scale = 1;
  uint32_t scores = FORGE_SCORES_SOFTMAX;
  OptionalFloats bias, expert_scales;
  uint32_t n_groups = 1, top_groups = 1;
  float threshold = 0;
  FORGE_OPERANDS("moe_route", logits, top_k, normalize, scale, scores, bias, expert_scales,
                 n_groups, top_groups, threshold)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("logits", logits);
    c.expect(top_k >= 1 && top_k <= in.cols && top_k <= 64, "top_k is ", top_k, "; valid is 1 to ",
             std::min<uint64_t>(in.cols, 64));
    c.expect(in.cols <= 4096, in.cols, " experts; at most 4096 are supported");
    c.expect(scores <= FORGE_SCORES_SPARSEMIXER, "unknown scores ", scores);
    c.expect(scores != FORGE_SCORES_SPARSEMIXER || (!bias && n_groups == 1),
             "sparsemixer has no bias and one group");
    c.vector("bias", bias, in.cols);
    c.vector("expert_scales", expert_scales, in.cols);
    c.expect(n_groups >= 1 && n_groups <= 32 && in.cols % n_groups == 0, n_groups, " groups of ",
             in.cols, " experts; valid is a divisor of up to 32");
    c.expect(top_groups >= 1 && top_groups <= n_groups && top_k <= in.cols / n_groups * top_groups,
             top_k, " experts of ", top_groups, " of ", n_groups, " groups of ",
             in.cols / n_groups);
    return {in.rows, 2ull * top_k, static_cast<uint32_t>(in.cols)};
  }
};

// A product with the chosen experts. The weight's rows are n_experts equal blocks, bias is
// [n_experts, rows per expert]. x is [rows, cols] (every expert sees the same row) or
// [rows, top_k * cols]; out[rows, top_k * rows per expert].
struct MoeMatmulOp {
  Input x, route;
  UniformMatrix weight;
  OptionalFloats bias;
  uint32_t n_experts = 0;
  FORGE_OPERANDS("moe_matmul", x, route, weight, bias, n_experts)

  Shape check(const OperationChecks& c) const {
    const Value &in = c.value("x", x), &chosen = c.value("route", route);
    const uint64_t top_k = chosen.cols / 2;
    c.expect(n_experts >= 1 && chosen.n_experts == n_experts, "route is ",
             chosen.n_experts == 0 ? "no moe_route value" : "over another number of experts",
             "; expected ", n_experts, " experts");
    c.expect(weight->rows % n_experts == 0, weight->rows, " rows are not ", n_experts,
             " experts of equal size");
    c.expect(in.rows == chosen.rows && (in.cols == weight->cols || in.cols == top_k * weight->cols),
             "x has ", in.cols, " columns; expected ", weight->cols, " or ", top_k * weight->cols);
    const uint64_t expert_rows = weight->rows / n_experts;
    if (bias) {
      c.expect(bias->rows == n_experts && bias->cols == expert_rows, "bias is [", bias->rows, ", ",
               bias->cols, "]; expected [", n_experts, ", ", expert_rows, "]");
    }
    return {in.rows, top_k * expert_rows};
  }
};

// out = residual + sum over the chosen experts of weight * x[expert].
struct MoeCombineOp {
  Input x, route;
  OptionalInput residual;
  FORGE_OPERANDS("moe_combine", x, route, residual)

  Shape check(const OperationChecks& c) const {
    const Value &in = c.value("x", x), &chosen = c.value("route", route);
    c.expect(chosen.n_experts != 0, "route is no moe_route value");
    const uint64_t top_k = chosen.cols / 2;
    c.expect(in.rows == chosen.rows && in.cols % top_k == 0, "x has ", in.cols, " columns for ",
             top_k, " experts");
    c.residual(residual, in.rows, in.cols / top_k);
    return {in.rows, in.cols / top_k};
  }
};

// out[outputs, cols] = the rows of x that the step's inputs name as outputs.
struct GatherOutputsOp {
  Input x;
  FORGE_OPERANDS("gather_outputs", x)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("x", x);
    c.expect(in.rows == Rows::tokens, "x has outputs for rows already");
    return {Rows::outputs, in.cols};
  }
};

// out = cap * tanh(x / cap).
struct SoftcapOp {
  Input x;
  float cap = 0;
  FORGE_OPERANDS("softcap", x, cap)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("x", x);
    c.expect(cap > 0 && std::isfinite(cap), "cap is ", cap, "; valid is a finite number > 0");
    return {in.rows, in.cols};
  }
};

// out = x held within -limit and limit; NaN stays.
struct ClampOp {
  Input x;
  float limit = 0;
  FORGE_OPERANDS("clamp", x, limit)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("x", x);
    c.expect(limit > 0 && std::isfinite(limit), "limit is ", limit,
             "; valid is a finite number > 0");
    return {in.rows, in.cols};
  }
};

// out = beta x + alpha_p x^2 where x > 0, else beta x + alpha_n (exp(min(x, eps)) - 1 - x): xIELU,
// arXiv 2411.13010.
struct XieluOp {
  Input x;
  float alpha_p = 0, alpha_n = 0, beta = 0, eps = 0;
  FORGE_OPERANDS("xielu", x, alpha_p, alpha_n, beta, eps)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("x", x);
    for (const float number : {alpha_p, alpha_n, beta, eps}) {
      c.expect(std::isfinite(number), "a number is ", number, "; valid are finite numbers");
    }
    return {in.rows, in.cols};
  }
};

// out = the sum of x over the ranks of the device's stage (forge_devices_join), added in their
// order, so that all ranks have the same bits.
struct AllReduceOp {
  Input x;
  FORGE_OPERANDS("all_reduce", x)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("x", x);
    return {in.rows, in.cols};
  }
};

// Sends x[tokens, cols] to the rank of the same number in the next stage of the group, which
// receives it in the same step. It has no value.
struct SendOp {
  Input x;
  FORGE_OPERANDS("send", x)

  Shape check(const OperationChecks& c) const {
    c.expect(c.value("x", x).rows == Rows::tokens, "x must have tokens for rows");
    return {};
  }
};

// out[tokens, cols] = what the rank of the same number in the previous stage sends.
struct ReceiveOp {
  uint32_t cols = 0;
  FORGE_OPERANDS("receive", cols)

  Shape check(const OperationChecks&) const { return {Rows::tokens, cols}; }
};

// Chooses one token for each row of logits[outputs, vocabulary] as the input block asks, and
// reports up to max_top alternatives (forge_sampling). The last operation of a step; it has no
// value.
struct SampleOp {
  Input logits;
  uint32_t max_top = 0;
  FORGE_OPERANDS("sample", logits, max_top)

  Shape check(const OperationChecks& c) const {
    const Value& in = c.value("logits", logits);
    c.expect(in.rows == Rows::outputs, "logits must have outputs for rows");
    c.expect(max_top <= in.cols, "max_top is ", max_top, " of ", in.cols, " logits");
    return {};
  }
};

#define FORGE_OPERATIONS(X)                                                                      \
  X(EmbedOp) X(AddEmbeddingOp) X(RmsNormOp) X(LayerNormOp) X(MatmulOp) X(HeadMatmulOp)           \
  X(RopeTableOp) X(RopeAppendOp) X(AttentionOp) X(PreviousRowsOp) X(GluOp) X(SigmoidGateOp)      \
  X(GatedRmsNormOp) X(CausalConv1dOp) X(GatedDeltaRuleOp) X(SelectiveScanOp) X(GatherColumnsOp)  \
  X(PermuteColumnsOp) X(MoeRouteOp) X(MoeMatmulOp) X(MoeCombineOp) X(GatherOutputsOp)            \
  X(SoftcapOp) X(ClampOp) X(XieluOp) X(LoraOp) X(AllReduceOp) X(SendOp) X(ReceiveOp)              \
  X(SampleOp)

#define FORGE_NEXT_OP(Type) , Type
template <class Begin, class... Ops>
struct VariantOf {
  using type = std::variant<Ops...>;
};
using Op = VariantOf<void FORGE_OPERATIONS(FORGE_NEXT_OP)>::type;
#undef FORGE_NEXT_OP

// Calls `use` with an operation as its own type. A switch, because each std::visit of so many types
// takes a compiler a second.
template <class Use, class AnyOp>
decltype(auto) visit_op(Use&& use, AnyOp& op) {
  enum class Index : size_t {
#define FORGE_INDEX(Type) Type,
    FORGE_OPERATIONS(FORGE_INDEX)
#undef FORGE_INDEX
  };
  switch (static_cast<Index>(op.index())) {
#define FORGE_CASE(Type) \
    case Index::Type: return use(*std::get_if<static_cast<size_t>(Index::Type)>(&op));
    FORGE_OPERATIONS(FORGE_CASE)
#undef FORGE_CASE
  }
  throw std::bad_variant_access();
}

}  // namespace forge
