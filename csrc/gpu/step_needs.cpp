#include "step_needs.h"

#include <algorithm>

#include "../common/host_weight.h"
#include "input_layout.h"
#include "weight_format.h"

namespace forge {

namespace {

bool has_codebooks(const WeightRef& weight) {
  return std::ranges::any_of(static_cast<const HostWeight&>(*weight).parts,
                             [](const WeightPart& part) { return uses_codebooks(part.type); });
}

// Calls `visit` for each operand of each operation.
template <class Visit>
void for_all_operands(const Program& program, Visit&& visit) {
  for (const Op& op : program.ops) {
    visit_op(
        [&](const auto& typed) {
          typed.with_operands([&](const auto&... operands) { (visit(operands), ...); });
        },
        op);
  }
}

}  // namespace

// The type of an operand's field selects the form of the weight.
void request_weights(const Program& program, WeightRequests& requests) {
  for_all_operands(program, [&]<class Operand>(const Operand& operand) {
    if constexpr (std::is_base_of_v<UniformMatrix, Operand>) {
      requests.add_unified(operand);
    } else if constexpr (std::is_base_of_v<Matrix, Operand>) {
      requests.add_matrix(operand);
    } else if constexpr (std::is_base_of_v<Floats, Operand>) {
      requests.add_floats(operand);
    }
  });
}

bool needs_codebooks(const Program& program) {
  bool needs = false;
  for_all_operands(program, [&]<class Operand>(const Operand& operand) {
    if constexpr (std::is_base_of_v<Matrix, Operand>) needs = needs || has_codebooks(operand);
  });
  return needs;
}

MissingCaches missing_caches(const Program& program) {
  MissingCaches missing;
  for_all_operands(program, [&]<class Operand>(const Operand& operand) {
    if constexpr (std::is_same_v<Operand, KvRef>) {
      const DeviceKv& cache = device_kv(*operand);
      if (!cache.is_allocated()) missing.kv.insert(&cache);
    } else if constexpr (std::is_same_v<Operand, StateRef>) {
      const DeviceStateCache& cache = device_state(*operand);
      if (!cache.is_allocated()) missing.states.insert(&cache);
    }
  });
  return missing;
}

void MissingCaches::allocate() const {
  for (const DeviceKv* cache : kv) cache->allocate();
  for (const DeviceStateCache* cache : states) cache->allocate();
}

MemoryNeeds memory_needs(uint64_t weight_bytes, const MissingCaches& caches,
                         const StepBytes& bytes) {
  MemoryNeeds needs{.weights = weight_bytes, .activations = bytes.total()};
  for (const DeviceKv* cache : caches.kv) {
    needs.kv_cache += cache->bytes();
    needs.page_bytes += cache->page_bytes;
    needs.page_tokens = cache->shape.page_tokens;
  }
  for (const DeviceStateCache* cache : caches.states) needs.recurrent_state += cache->bytes();
  return needs;
}

uint64_t result_bytes(const Program& program, uint32_t n_outputs) {
  // Each output's header, then its most probable ids and their log-probabilities.
  const uint64_t stride = sizeof(forge_result) + 8ull * program.max_top;
  return program.samples ? n_outputs * stride : 0;
}

StepBytes step_bytes(const Program& program, const ScratchPlan& values,
                     const WorkspaceBytes& workspace, const std::vector<StepShape>& shapes) {
  return {.values = values.elements * sizeof(float),
          .workspace = workspace,
          .results = result_bytes(program, program.limits.max_outputs),
          .inputs = input_bytes(program, shapes)};
}

}  // namespace forge
