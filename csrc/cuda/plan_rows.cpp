// Launches of kernels that take one struct, and what CUDA adds to the operations that GPUs share.

#include <algorithm>
#include <bit>

#include "../common/error.h"
#include "plan_builder.h"

namespace forge::cuda {

namespace {

// Shared memory in which two norms of one launch keep a row.
constexpr uint32_t kMostNormShared = 96 * 1024;

}  // namespace

void PlanBuilder::add_launch(const char* kernel, const std::string& instance,
                             const Geometry& geometry, std::span<const DevicePointer> buffers,
                             std::span<const uint8_t> scalars) {
  plan_.entries.emplace_back(std::in_place_type<Launch>,
                             device_.kernels.get(std::string(kernel) + ".cu", instance), geometry,
                             buffers, scalars);
}

UniformRows<DevicePointer> PlanBuilder::uniform_rows(const WeightRef& weight) const {
  const UnifiedWeight rows = unified(cuda_weight(*weight));
  return {rows.type, rows.row_bytes, rows.data};
}

void PlanBuilder::emit(const RmsNormOp& op) {
  if (!device_.device().fuses_operations()) return emit_norm(op);
  const RmsNormOp* next = second_norm(op);
  if (next && kept_row_bytes(cols(op.x)) <= kMostNormShared) return emit_two_norms(op, *next);
  if (!emit_norm_with_product(op)) emit_norm(op);
}

void PlanBuilder::emit(const GatedDeltaRuleOp& op) {
  require(op.k_dim() <= kernel_args::kMostDeltaKeys, "gated_delta_rule: keys of ", op.k_dim(),
          " numbers; the CUDA device takes up to ", kernel_args::kMostDeltaKeys);
  const uint32_t rows = divide_up(op.k_dim(), kernel_args::kDeltaLanes);
  emit_delta_rule(op, std::max(std::bit_ceil(rows), 2u));
}

void PlanBuilder::emit(const SampleOp& op) { emit_sampling(op); }

void PlanBuilder::emit(const AllReduceOp& op) {
  // All ranks have the same shape, and rows beyond those of the run are never read.
  const uint64_t n = uint64_t{max_rows(op.out)} * cols(op.out);
  plan_.entries.emplace_back(std::in_place_type<NcclCall>, device_.place, value(op.out),
                             value(op.x), n);
}

}  // namespace forge::cuda
