#pragma once

// Turns a program into the launches that run it for one shape. The operations are those of forge.h;
// plan_*.cpp hold them by kind.

#include <map>
#include <string>
#include <vector>

#include "../gpu/planner.h"
#include "../gpu/weight_format.h"
#include "attention_choice.h"
#include "cuda_device.h"
#include "cache_memory.h"
#include "cuda_weight.h"
#include "plan_entry.h"

namespace forge::cuda {

using RunAddresses = forge::RunAddresses<DevicePointer>;
using PlanRequest = forge::PlanRequest<DevicePointer>;
using LaunchPlan = forge::LaunchPlan<PlanEntry>;

class PlanBuilder : public Planner<DevicePointer, PlanEntry> {
 public:
  PlanBuilder(const PlanRequest& request, CudaDevice& device, const AttentionChoice& attention)
      : Planner(request),
        device_(device),
        gpu_(device.device().properties()),
        attention_(attention) {}

  LaunchPlan build() {
    return plan_with([this](const auto& op) { emit(op); });
  }

 private:
#define FORGE_DECLARE(AnyOp) void emit(const AnyOp& op);
  FORGE_OPERATIONS(FORGE_DECLARE)
#undef FORGE_DECLARE

  // One launch for a norm whose result, with a residual, is normalised again; false where the
  // next operation is no such norm.
  bool emit_two_norms(const RmsNormOp& op);

  // One part of a weight, as a product with some rows of x.
  struct Product {
    DevicePointer out, x;
    const CudaWeight* weight;
    const DevicePart* part;
    Epilogue epilogue;

    DevicePointer data() const { return weight->matrix.at(part->offset); }
    uint32_t n_rows() const { return static_cast<uint32_t>(part->rows); }
    uint32_t n_cols() const { return static_cast<uint32_t>(weight->cols); }
    uint32_t out_stride() const { return static_cast<uint32_t>(weight->rows); }
  };
  using RowGroup = forge::RowGroup<DevicePointer>;
  // Rows of x as 16-bit floats, and what each was divided by.
  struct HalfRows {
    DevicePointer x, scale;
  };
  std::vector<Product> products_of(const MatmulOp& op) const;
  // One launch for a product whose result the next operation gates, where matvec would compute it;
  // false where it is none.
  bool emit_gated_product(const MatmulOp& op, const RowGroup& rows);
  bool decodes_by_matvec() const;
  void emit_matvec(const Product& product, const RowGroup& rows);
  void emit_decode_gemm(const Product& product, const RowGroup& rows);
  void emit_gemm(const Product& product, const RowGroup& rows);
  // By cuBLASLt; false where it is not there, or not worth it.
  bool emit_library_product(const Product& product, const RowGroup& rows);
  // The whole product as the library has it.
  LtShape library_shape(const Product& product, const RowGroup& rows) const;
  // Rows are converted once for all the parts of a weight: between one call of begin_half_rows and
  // the next. A row of x may be several of the product, its `pieces`.
  void begin_half_rows();
  const HalfRows& half_rows(WeightType type, DevicePointer x, uint32_t cols, const RowGroup& rows,
                            uint32_t pieces = 1);
  uint32_t matvec_split(uint64_t rows, uint64_t cols, const WeightFormat& format) const;

  // A product of rows that each take `top_k` of the equal blocks of a weight's rows, as a routing
  // has it, or all of them in order where there is none.
  struct GroupedProduct {
    const char* name;  // of the operation, for errors
    ValueId out, x, route;
    const CudaWeight& weight;
    DevicePointer bias;
    uint32_t n_experts, top_k;
  };
  void emit(const GroupedProduct& product);
  using RouteGroups = forge::RouteGroups<DevicePointer>;
  // The product's pairs of row and expert, sorted by expert; valid until the next call.
  const RouteGroups& groups_of(const GroupedProduct& p, const RowGroup& rows,
                               uint32_t tile_tokens);
  void emit_grouped_matvec(const GroupedProduct& p, const RowGroup& rows);
  void emit_grouped_gemm(const GroupedProduct& p, const RowGroup& rows);

  AttentionArgs attention_args(const AttentionOp& op) const;
  void emit_naive_attention(const AttentionOp& op);
  // By libflash_attn: the short runs of the step, the long ones, or both.
  void emit_flash_attention(const AttentionOp& op, const AttentionKernels& kernels);
  flash_attn_params flash_params(const AttentionOp& op, const RunAddresses& runs) const;
  void emit_decode_attention(const AttentionOp& op);
  // Sums of the splits of decoded queries, and what they become.
  struct DecodeSplits {
    DevicePointer out, ml;
  };
  DecodeSplits decode_splits(const AttentionOp& op);
  void merge_splits(const AttentionOp& op, const DecodeSplits& splits);
  // Of heads whose values are in their keys: decoded queries, or those of prompts.
  void emit_latent_attention(const AttentionOp& op, const DecodeSplits* splits);
  void emit_prefill_attention(const AttentionOp& op);

  template <class... Parameters>
  void launch(const char* file, const std::string& instance, Grid grid, uint32_t block,
              uint32_t shared_bytes, const Parameters&... parameters) {
    plan_.entries.emplace_back(std::in_place_type<Launch>, device_.kernels.get(file, instance), grid,
                               block, shared_bytes, parameters...);
  }

  CudaDevice& device_;
  const DeviceProperties& gpu_;
  const AttentionChoice& attention_;
  std::map<std::string, HalfRows> half_rows_;  // by their type
};

// Elements of a row that one block of an elementwise kernel takes.
constexpr uint32_t kBlockElements = 1024;
// Tokens that one launch of matvec or grouped_matvec computes together, of `rows` in all.
uint32_t tokens_together(uint32_t rows, const WeightFormat& format);
// Rows that a warp of matvec or grouped_matvec computes together.
constexpr uint32_t warp_rows(const WeightFormat& format) { return format.is_generic ? 1 : 2; }
// As in "gemm<FormatQ8_0, f16>".
std::string half_instance(const char* kernel, WeightType type);

// What a block of gemm and grouped_gemm computes, and its dynamic shared memory.
constexpr uint32_t kGemmRows = 128;
constexpr uint32_t kGemmTokens = 64;
constexpr uint32_t kGemmShared = 55296;
// The columns of x as tensor cores take them.
constexpr uint32_t padded_cols(uint64_t cols) { return divide_up(cols, 64) * 64; }

}  // namespace forge::cuda
