#include "step_needs.h"

#include <algorithm>

#include "../common/host_weight.h"
#include "codebooks.h"

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
    std::visit(
        [&](const auto& typed) {
          std::apply([&](const auto&... operands) { (visit(operands), ...); }, typed.operands());
        },
        op);
  }
}

}  // namespace

// The type of an operand's field says in which form kernels read the weight.
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

std::set<const DeviceKv*> missing_caches(const Program& program) {
  std::set<const DeviceKv*> caches;
  for_all_operands(program, [&]<class Operand>(const Operand& operand) {
    if constexpr (std::is_same_v<Operand, KvRef>) {
      const DeviceKv& cache = device_kv(*operand);
      if (!cache.is_allocated()) caches.insert(&cache);
    }
  });
  return caches;
}

std::set<const DeviceSlots*> missing_states(const Program& program) {
  std::set<const DeviceSlots*> states;
  for_all_operands(program, [&]<class Operand>(const Operand& operand) {
    if constexpr (std::is_same_v<Operand, StateRef>) {
      const DeviceSlots& slots = device_slots(*operand);
      if (!slots.is_allocated()) states.insert(&slots);
    }
  });
  return states;
}

}  // namespace forge
