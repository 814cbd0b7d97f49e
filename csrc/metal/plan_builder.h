#pragma once

// Turns a program into the launches that run it for one shape. The operations are those of forge.h;
// plan_*.cpp hold them by kind, with the geometry that kernels/metal/arguments.h asks for.

#include <array>
#include <optional>
#include <vector>

#include "../../kernels/metal/arguments.h"
#include "../gpu/shared_operations.h"
#include "launch.h"
#include "metal_device.h"
#include "caches.h"
#include "metal_weight.h"

namespace forge::metal {

using PlanRequest = forge::PlanRequest<Place>;
using LaunchPlan = forge::LaunchPlan<Launch>;

// A step shape with what else its launches depend on.
struct PlanShape : StepShape {
  bool greedy = false;     // true if is_greedy(inputs)
  bool has_splits = true;  // true if decode attention splits the positions of a tile

  auto operator<=>(const PlanShape&) const = default;
};

// True if every output of a run takes its largest logit, without adjusted logits or reported
// alternatives.
bool is_greedy(const StepInputs& inputs);

class PlanBuilder final : public SharedOperations<Place, Launch> {
 public:
  PlanBuilder(const PlanRequest& request, const PlanShape& shape, MetalDevice& device)
      : SharedOperations(request),
        greedy_(shape.greedy),
        has_splits_(shape.has_splits),
        device_(device) {}

  LaunchPlan build() {
    return plan_with([this](const auto& op) { emit(op); });
  }

 private:
  using SharedOperations::emit;
  void emit(const RmsNormOp& op);
  void emit(const MatmulOp& op);
  void emit(const HeadMatmulOp& op);
  void emit(const AttentionOp& op);
  void emit(const GatedDeltaRuleOp& op);
  void emit(const MoeMatmulOp& op);
  void emit(const SampleOp& op);

  void add_launch(const char* kernel, const std::string& instance, const Geometry& geometry,
                  std::span<const Place> buffers, std::span<const uint8_t> scalars) override;
  Place numbers(const KvRef& kv) const override { return MetalKv::of(kv).memory(); }
  Place numbers(const StateRef& state) const override {
    return MetalStateCache::of(state).memory();
  }
  Place floats(const WeightRef& weight) const override { return floats_of(weight); }
  UniformRows<Place> uniform_rows(const WeightRef& weight) const override;
  uint64_t kept_row_bytes(uint32_t) const override { return 0; }

  // Emits the norm inside the product that reads it; returns false if that is slower or impossible.
  bool emit_norm_with_product(const RmsNormOp& op);

  using RowGroup = forge::RowGroup<Place>;
  struct Product {
    Place out, bias, residual;
    uint32_t first_row;  // in the weight
    WeightType type;
    std::array<Place, kMostPieces> weights;
    size_t pieces;
    metal_args::MatvecArgs args;
  };
  // The products of a matmul: one for up to kMostPieces consecutive pieces of its weight of one
  // type.
  std::vector<Product> products_of(const MatmulOp& op) const;
  // The instance, grid and arguments of a kernel with the body of matvec.
  struct Matvec {
    WeightFormat format;
    uint32_t tokens;
    Grid grid;
    metal_args::MatvecArgs args;
  };
  Matvec matvec_of(const Product& product, const RowGroup& group) const;
  // Emits the product with the gated unit that follows; the sums are the same as in two launches.
  // Returns false if they cannot be fused. With a norm, normalises x of decode rows first.
  bool emit_gated_product(const MatmulOp& op, const RmsNormOp* norm, const RowGroup& decode,
                          const RowGroup& prefill);
  // Emits the product of a norm with the rotation and the storing of keys and values that follow;
  // returns false if they cannot be fused.
  bool emit_qkv_product(const MatmulOp& op, const RmsNormOp& norm, const RowGroup& rows);
  // With a norm, normalises x first.
  void emit_matvec(const Product& product, Place x, const RmsNormOp* norm, const RowGroup& group);
  // Rows of x as gemm reads them: in F16 with factors, or in F32.
  struct GemmRows {
    Place x, factors;
  };
  // True if gemm multiplies weights of a type with rows in F16; other types have more exponents.
  static bool is_rounded(WeightType type) {
    return type != WeightType::F32 && type != WeightType::BF16;
  }
  // Rounds rows of `pieces` times `cols` numbers, each piece by its own factor. The result is valid
  // during the current operation.
  GemmRows round_rows(Place x, uint32_t cols, uint32_t pieces, const RowGroup& group);
  void emit_gemm(const Product& product, const GemmRows& rows, const RowGroup& group);
  void emit_gemms(const std::vector<Product>& products, Place x, const RowGroup& group);

  // A product of each row with `top_k` of the equal blocks of a weight's rows: those that a routing
  // chose, or, without a routing, all of them in order.
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
  // Arguments of grouped_matvec and grouped_gemm.
  metal_args::GroupedMatvecArgs grouped_args(const GroupedProduct& p) const;
  void emit_grouped_matvec(const GroupedProduct& p, const RowGroup& group);
  void emit_grouped_gemm(const GroupedProduct& p, const RowGroup& group);

  bool has_tiled_attention(const AttentionOp& op) const;
  // True if the mask of the run applies.
  bool is_masked(const AttentionOp& op) const { return op.masked && shape_.mask_kind != 0; }
  metal_args::AttentionArgs attention_args(const AttentionOp& op) const;
  void emit_naive_attention(const AttentionOp& op);
  void emit_decode_attention(const AttentionOp& op);
  void emit_prefill_attention(const AttentionOp& op);
  // Partial sums of decoded queries, with their maxima and exponential sums.
  struct DecodeSplits {
    Place out, ml;
  };
  // For values in keys: decoded queries if `splits` is given, else prompts.
  void emit_latent_attention(const AttentionOp& op, const DecodeSplits* splits);
  void emit_sampling(const SampleOp& op);
  void emit_greedy(const SampleOp& op);

  using SharedOperations::launch;
  template <class Arguments>
  void launch(const char* file, const std::string& name, Grid grid, Group group,
              std::initializer_list<Place> buffers, const Arguments& arguments) {
    plan_.entries.emplace_back(device_.kernels.get(file, name), grid, group, buffers, arguments);
  }

  const bool greedy_, has_splits_;
  MetalDevice& device_;
};

}  // namespace forge::metal
