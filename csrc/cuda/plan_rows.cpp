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

// All devices of a group have the same shape, and rows beyond those of the run are never read.

void PlanBuilder::emit(const AllReduceOp& op) {
  add_exchange(NcclExchange::sum, op.x, op.out, op.out);
}

void PlanBuilder::emit(const SendOp& op) { add_exchange(NcclExchange::send, op.x, 0, op.x); }

void PlanBuilder::emit(const ReceiveOp& op) {
  add_exchange(NcclExchange::receive, 0, op.out, op.out);
}

void PlanBuilder::add_exchange(NcclExchange kind, ValueId in, ValueId out, ValueId shape) {
  const auto at = [&](ValueId id) { return id == 0 ? DevicePointer{} : value(id); };
  const uint64_t n = uint64_t{max_rows(shape)} * cols(shape);
  plan_.entries.emplace_back(std::in_place_type<NcclCall>, device_.links, kind, at(in), at(out), n);
}

}  // namespace forge::cuda
