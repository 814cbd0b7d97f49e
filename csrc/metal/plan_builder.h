#pragma once

// Turns a program into the launches that run it for one shape. The operations are those of forge.h;
// plan_*.cpp hold them by kind, with the geometry that kernels/metal/arguments.h asks for.

#include <vector>

#include "../../kernels/metal/arguments.h"
#include "../common/program.h"
#include "../common/scratch_plan.h"
#include "../gpu/weight_format.h"
#include "launch.h"
#include "metal_kv.h"
#include "metal_weight.h"
#include "run_inputs.h"

namespace forge::metal {

// Device memory beside the values of a program: what single operations, or neighbours, hand from
// one of their launches to the next.
struct Workspace {
  Place routes;   // tokens grouped by expert, until the next routing
  Place scratch;  // of one operation
};

struct WorkspaceBytes {
  uint64_t routes = 0;
  uint64_t scratch = 0;
};

// Where everything lies that launches read and write.
struct PlanMemory {
  Place values;  // the arena of ScratchPlan
  Workspace workspace;
  Place codebooks;    // of the weight types that look values up
  Place occurrences;  // of tokens in histories, [max_outputs, vocabulary], all 0
  Place results;      // the result block of the ABI
};

// What a plan is made for.
struct PlanShape {
  StepShape step;
  bool greedy = false;  // whether every output takes its largest logit and reports nothing else

  auto operator<=>(const PlanShape&) const = default;
};

// Whether every output of a run takes its largest logit, with nothing that adjusts logits before or
// wants to know more of them.
bool is_greedy(const StepInputs& inputs);

// The launches of a step, in order.
struct LaunchPlan {
  std::vector<Launch> launches;
  // The first of the sample operation.
  size_t sampling_begin = 0;
};

class PlanBuilder {
 public:
  PlanBuilder(const Program& program, const ScratchPlan& values, const PlanMemory& memory,
              const PlanShape& shape, const InputPlaces& inputs, Kernels& kernels);

  LaunchPlan build();
  // What the launches need; known once they are built, whatever places they were built with.
  const WorkspaceBytes& workspace_bytes() const { return needed_; }

 private:
  void emit(const EmbedOp& op);
  void emit(const RmsNormOp& op);
  void emit(const LayerNormOp& op);
  void emit(const MatmulOp& op);
  void emit(const RopeTableOp& op);
  void emit(const RopeAppendOp& op);
  void emit(const AttentionOp& op);
  void emit(const GluOp& op);
  void emit(const SigmoidGateOp& op);
  void emit(const GatedRmsNormOp& op);
  void emit(const CausalConv1dOp& op);
  void emit(const GatedDeltaRuleOp& op);
  void emit(const MoeRouteOp& op);
  void emit(const MoeMatmulOp& op);
  void emit(const MoeCombineOp& op);
  void emit(const GatherOutputsOp& op);
  void emit(const SoftcapOp& op);
  void emit(const SampleOp& op);

  // The operation after the current one, where it is of this kind.
  template <class Op>
  const Op* next_op() const {
    const bool is_last = op_index_ + 1 >= program_.ops.size();
    return is_last ? nullptr : std::get_if<Op>(&program_.ops[op_index_ + 1]);
  }

  void emit_norm(const RmsNormOp& op);
  // One launch for a norm whose result, with a residual, is normalised again; false where the
  // next operation is no such norm.
  bool emit_two_norms(const RmsNormOp& op);
  // The norm within the product that reads it; false where that is no gain or not possible.
  bool emit_norm_with_product(const RmsNormOp& op);

  // Rows of a value that one kind of product computes.
  struct RowGroup {
    Place n_rows, list;
    uint32_t max_rows;  // 0: there are none
    bool is_all;        // then there is no list
  };
  struct RowGroups {
    RowGroup decode, prefill;
  };
  RowGroups row_groups(ValueId id) const;
  struct Product {
    Place out, bias, residual;
    const WeightRows* rows;
    metal_args::MatvecArgs args;
  };
  // The products of a matmul, one for the rows of each type of its weight.
  std::vector<Product> products_of(const MatmulOp& op) const;
  // Of x, or, with a norm, of what that makes of x.
  void emit_matvec(const Product& product, Place x, const RmsNormOp* norm, const RowGroup& group);
  void emit_gemm(const Product& product, Place x, const RowGroup& group);

  // Tokens grouped by expert, for tiles of a size.
  struct RouteGroups {
    ValueId route = 0;
    uint32_t tile_tokens = 0;
    Place tiles, n_tiles, pairs;
    uint32_t max_tiles = 0;
  };
  const RouteGroups& group_by_expert(ValueId route, uint32_t n_experts, uint32_t tile_tokens);

  metal_args::AttentionArgs attention_args(const AttentionOp& op) const;
  void emit_naive_attention(const AttentionOp& op);
  void emit_decode_attention(const AttentionOp& op);
  void emit_prefill_attention(const AttentionOp& op);
  void emit_greedy(const SampleOp& op);

  template <class Arguments>
  void launch(const char* file, const std::string& name, Grid grid, Group group,
              std::initializer_list<Place> buffers, const Arguments& arguments) {
    plan_.launches.emplace_back(kernels_.get(file, name), grid, group, buffers, arguments);
  }

  Place value(ValueId id) const;
  uint32_t cols(ValueId id) const { return static_cast<uint32_t>(program_.value(id).cols); }
  // The device's count of a value's rows, and the most that it can be in this shape.
  Place n_rows(ValueId id) const;
  uint32_t max_rows(ValueId id) const;
  // Takes memory of one operation.
  Place scratch(uint64_t bytes);

  const Program& program_;
  const ScratchPlan& values_;
  const PlanMemory memory_;
  const StepShape shape_;
  const bool greedy_;
  const InputPlaces inputs_;
  Kernels& kernels_;
  LaunchPlan plan_;
  WorkspaceBytes needed_;
  uint64_t scratch_used_ = 0;
  size_t op_index_ = 0;
  RouteGroups groups_;
};

}  // namespace forge::metal
