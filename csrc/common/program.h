#pragma once

// A recorded step as data: values and the operations between them, in the order they run. A backend
// executes it by visiting the variant, so that an operation a backend lacks does not compile.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "../forge.h"
#include "backend.h"

namespace forge {

enum class Rows : uint8_t { tokens, outputs };

// A value's number in its step, from 1; 0 is none.
using ValueId = uint32_t;

struct Value {
  Rows rows;
  uint64_t cols;
  bool keep = false;
  uint32_t n_experts = 0;  // of a routing: its expert numbers are below this
};

using WeightRef = std::shared_ptr<const Weight>;
using KvRef = std::shared_ptr<KvCache>;
using StateRef = std::shared_ptr<StateCache>;

struct EmbedOp {
  WeightRef weight;
  float scale;
  ValueId out;
  std::array<ValueId, 0> reads() const { return {}; }
};

struct RmsNormOp {
  ValueId x;
  WeightRef weight;
  float eps;
  float weight_offset;
  ValueId residual;
  ValueId out;
  std::array<ValueId, 2> reads() const { return {x, residual}; }
};

struct LayerNormOp {
  ValueId x;
  WeightRef weight;
  WeightRef bias;
  float eps;
  ValueId out;
  std::array<ValueId, 1> reads() const { return {x}; }
};

struct MatmulOp {
  ValueId x;
  WeightRef weight;
  WeightRef bias;
  float alpha;
  uint32_t activation;
  ValueId residual;
  ValueId out;
  std::array<ValueId, 2> reads() const { return {x, residual}; }
};

// A product for each head; see forge_head_matmul.
struct HeadMatmulOp {
  ValueId x;
  WeightRef weight;
  uint32_t n_heads;
  ValueId out;
  std::array<ValueId, 1> reads() const { return {x}; }
};

struct RopeTableOp {
  WeightRef inv_freq;
  float scale;
  ValueId out;
  std::array<ValueId, 0> reads() const { return {}; }
};

struct RopeAppendOp {
  ValueId qkv;
  KvRef kv;
  uint32_t n_heads;
  WeightRef q_norm;
  WeightRef k_norm;
  float eps;
  float weight_offset;
  ValueId rope;
  uint32_t rope_layout;
  ValueId out;
  std::array<ValueId, 2> reads() const { return {qkv, rope}; }
  // Where in a head the elements that are rotated begin; there are `n` of them.
  uint32_t first_rotated(uint64_t n) const {
    return kv->shape.values_in_keys ? kv->shape.k_head_dim - static_cast<uint32_t>(n) : 0;
  }
};

struct AttentionOp {
  ValueId q;
  KvRef kv;
  uint32_t n_heads;
  float scale;
  uint32_t window;
  float softcap;
  WeightRef sinks;
  ValueId out;
  std::array<ValueId, 1> reads() const { return {q}; }
};

struct GluOp {
  ValueId x;
  uint32_t width;
  uint32_t unit;
  ValueId out;
  std::array<ValueId, 1> reads() const { return {x}; }
};

struct SigmoidGateOp {
  ValueId x;
  ValueId gate;
  ValueId residual;
  ValueId out;
  std::array<ValueId, 3> reads() const { return {x, gate, residual}; }
};

struct GatedRmsNormOp {
  ValueId x;
  ValueId gate;
  WeightRef weight;
  float eps;
  uint32_t activation;
  ValueId out;
  std::array<ValueId, 2> reads() const { return {x, gate}; }
};

// The widest convolution: far above any model's.
constexpr uint32_t kMostConvWidth = 64;

struct CausalConv1dOp {
  ValueId x;
  WeightRef weight;
  WeightRef bias;
  StateRef state;
  uint32_t activation;
  ValueId out;
  std::array<ValueId, 1> reads() const { return {x}; }
};

struct GatedDeltaRuleOp {
  ValueId qkv;
  ValueId ba;
  WeightRef rate;
  WeightRef dt_bias;
  StateRef state;
  uint32_t n_k_heads;
  uint32_t n_v_heads;
  uint32_t k_dim;
  uint32_t v_dim;
  uint32_t head_order;
  float scale;
  float eps;
  ValueId out;
  std::array<ValueId, 2> reads() const { return {qkv, ba}; }
  uint32_t key_head(uint32_t value_head) const {
    return head_order == FORGE_HEADS_TILED ? value_head % n_k_heads
                                           : value_head / (n_v_heads / n_k_heads);
  }
};

struct GatherColumnsOp {
  std::array<forge_piece, FORGE_MAX_PIECES> pieces;  // those not used have the value 0
  uint32_t n_groups;
  ValueId out;
  std::array<ValueId, FORGE_MAX_PIECES> reads() const {
    return {pieces[0].value, pieces[1].value, pieces[2].value};
  }
  uint64_t group_cols() const {
    return uint64_t{pieces[0].width} + pieces[1].width + pieces[2].width;
  }
};

struct PermuteColumnsOp {
  ValueId x;
  ValueId route;  // or 0
  WeightRef order;  // [experts, cols], of whole numbers
  ValueId out;
  std::array<ValueId, 2> reads() const { return {x, route}; }
};

// How a router chooses; see forge_moe_route.
struct Routing {
  uint32_t top_k;
  bool normalize;
  float scale;
  uint32_t scores;
  WeightRef bias;
  WeightRef expert_scales;
  uint32_t n_groups;
  uint32_t top_groups;
};

struct MoeRouteOp {
  ValueId logits;
  Routing routing;
  ValueId out;
  std::array<ValueId, 1> reads() const { return {logits}; }
};

struct MoeMatmulOp {
  ValueId x;
  ValueId route;
  WeightRef weight;
  WeightRef bias;
  uint32_t n_experts;
  ValueId out;
  std::array<ValueId, 2> reads() const { return {x, route}; }
};

struct MoeCombineOp {
  ValueId x;
  ValueId route;
  ValueId residual;
  ValueId out;
  std::array<ValueId, 3> reads() const { return {x, route, residual}; }
};

struct GatherOutputsOp {
  ValueId x;
  ValueId out;
  std::array<ValueId, 1> reads() const { return {x}; }
};

struct SoftcapOp {
  ValueId x;
  float cap;
  ValueId out;
  std::array<ValueId, 1> reads() const { return {x}; }
};

struct ClampOp {
  ValueId x;
  float limit;
  ValueId out;
  std::array<ValueId, 1> reads() const { return {x}; }
};

// Writes to the result block, not to a value.
struct SampleOp {
  ValueId logits;
  uint32_t max_top;
  ValueId out = 0;
  std::array<ValueId, 1> reads() const { return {logits}; }
};

using Op = std::variant<EmbedOp, RmsNormOp, LayerNormOp, MatmulOp, HeadMatmulOp, RopeTableOp,
                        RopeAppendOp, AttentionOp, GluOp, SigmoidGateOp, GatedRmsNormOp,
                        CausalConv1dOp, GatedDeltaRuleOp, GatherColumnsOp, PermuteColumnsOp,
                        MoeRouteOp, MoeMatmulOp, MoeCombineOp, GatherOutputsOp, SoftcapOp, ClampOp,
                        SampleOp>;

struct StepLimits {
  uint32_t max_tokens;
  uint32_t max_outputs;
  uint32_t max_sequences;
  uint32_t max_pages;
};

struct Program {
  StepLimits limits{};
  std::vector<Value> values;  // value v is values[v - 1]
  std::vector<Op> ops;
  // What an input block is checked against; 0 where the step has no such operation.
  uint64_t vocabulary = 0;       // rows of the embedding
  uint64_t logits_cols = 0;      // width of the sampled logits
  uint32_t max_top = 0;          // of the sample operation
  uint32_t page_tokens = 0;      // of every KV cache in the step
  uint32_t n_pages = 0;          // of the smallest KV cache in the step
  uint32_t n_slots = 0;          // of the smallest state cache in the step
  bool samples = false;

  const Value& value(ValueId id) const { return values[id - 1]; }
  uint64_t max_rows(ValueId id) const {
    return value(id).rows == Rows::tokens ? limits.max_tokens : limits.max_outputs;
  }
  // Whether one operation alone reads a value, and nobody after the run.
  bool is_read_once(ValueId id) const {
    size_t readers = 0;
    for (const Op& op : ops) {
      std::visit([&](const auto& typed) { readers += std::ranges::count(typed.reads(), id); }, op);
    }
    return readers == 1 && !value(id).keep;
  }
};

}  // namespace forge
