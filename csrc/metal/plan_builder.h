#pragma once

// Turns a program into the launches that run it for one shape. The operations are those of forge.h;
// plan_*.cpp hold them by kind, with the geometry that kernels/metal/arguments.h asks for.

#include <vector>

#include "../../kernels/metal/arguments.h"
#include "../gpu/planner.h"
#include "../gpu/weight_format.h"
#include "launch.h"
#include "metal_device.h"
#include "cache_memory.h"
#include "metal_weight.h"

namespace forge::metal {

using PlanRequest = forge::PlanRequest<Place>;
using LaunchPlan = forge::LaunchPlan<Launch>;

// A step shape with the kind of sampling.
struct PlanShape : StepShape {
  bool greedy = false;  // true if is_greedy(inputs)

  auto operator<=>(const PlanShape&) const = default;
};

// True if every output of a run takes its largest logit, without adjusted logits or reported
// alternatives.
bool is_greedy(const StepInputs& inputs);

class PlanBuilder : public Planner<Place, Launch> {
 public:
  PlanBuilder(const PlanRequest& request, bool greedy, MetalDevice& device)
      : Planner(request), greedy_(greedy), device_(device) {}

  LaunchPlan build() {
    return plan_with([this](const auto& op) { emit(op); });
  }

 private:
#define FORGE_DECLARE(AnyOp) void emit(const AnyOp& op);
  FORGE_OPERATIONS(FORGE_DECLARE)
#undef FORGE_DECLARE

  // Of a kernel that computes each element on its own.
  static Grid elementwise_grid(uint32_t cols, uint32_t rows) {
    return {divide_up(cols, metal_args::kRowElements), rows};
  }

  void emit_norm(const RmsNormOp& op);
  // One launch for a norm whose result, with a residual, is normalised again; false where the
  // next operation is no such norm.
  bool emit_two_norms(const RmsNormOp& op);
  // The norm within the product that reads it; false where that is no gain or not possible.
  bool emit_norm_with_product(const RmsNormOp& op);

  using RowGroup = forge::RowGroup<Place>;
  struct Product {
    Place out, bias, residual;
    const WeightRows* rows;
    metal_args::MatvecArgs args;
  };
  // The products of a matmul, one for the rows of each type of its weight.
  std::vector<Product> products_of(const MatmulOp& op) const;
  // With the gated unit that follows the matmul, whose sums are the same; false where none does, or
  // it takes a launch of its own. With a norm, of what that makes of its input.
  bool emit_gated_product(const MatmulOp& op, const RmsNormOp* norm, const RowGroup& rows);
  // Of x, or, with a norm, of what that makes of x.
  void emit_matvec(const Product& product, Place x, const RmsNormOp* norm, const RowGroup& group);
  void emit_gemm(const Product& product, Place x, const RowGroup& group);

  // A product of rows that each take `top_k` of the equal blocks of a weight's rows, as a routing
  // has it, or all of them in order where there is none.
  struct GroupedProduct {
    ValueId out, x, route;
    const MetalWeight& weight;
    WeightRef bias;
    uint32_t n_experts, top_k;
  };
  void emit(const GroupedProduct& product);
  using RouteGroups = forge::RouteGroups<Place>;
  // The product's pairs of row and expert, sorted by expert; valid until the next call.
  const RouteGroups& groups_of(const GroupedProduct& p, const RowGroup& rows,
                               uint32_t tile_tokens);
  // Of either product with experts.
  metal_args::GroupedMatvecArgs grouped_args(const GroupedProduct& p) const;
  void emit_grouped_matvec(const GroupedProduct& p, const RowGroup& group);
  void emit_grouped_gemm(const GroupedProduct& p, const RowGroup& group);

  bool has_tiled_attention(const AttentionOp& op) const;
  metal_args::AttentionArgs attention_args(const AttentionOp& op) const;
  void emit_naive_attention(const AttentionOp& op);
  void emit_decode_attention(const AttentionOp& op);
  void emit_prefill_attention(const AttentionOp& op);
  // Sums of the splits of decoded queries.
  struct DecodeSplits {
    Place out, ml;
  };
  // Of heads whose values are in their keys: decoded queries, or, without splits, prompts.
  void emit_latent_attention(const AttentionOp& op, const DecodeSplits* splits);
  void emit_greedy(const SampleOp& op);

  template <class Arguments>
  void launch(const char* file, const std::string& name, Grid grid, Group group,
              std::initializer_list<Place> buffers, const Arguments& arguments) {
    plan_.entries.emplace_back(device_.kernels.get(file, name), grid, group, buffers, arguments);
  }

  const bool greedy_;
  MetalDevice& device_;
};

}  // namespace forge::metal
