#include "step_needs.h"

#include <algorithm>

#include "../common/host_weight.h"
#include "codebooks.h"

namespace forge {

namespace {

void request(const EmbedOp& op, WeightRequests& requests) { requests.add_unified(op.weight); }
void request(const RmsNormOp& op, WeightRequests& requests) { requests.add_floats(op.weight); }
void request(const LayerNormOp& op, WeightRequests& requests) {
  requests.add_floats(op.weight);
  requests.add_floats(op.bias);
}
void request(const MatmulOp& op, WeightRequests& requests) {
  requests.add_matrix(op.weight);
  requests.add_floats(op.bias);
}
void request(const HeadMatmulOp& op, WeightRequests& requests) { requests.add_unified(op.weight); }
void request(const RopeTableOp& op, WeightRequests& requests) { requests.add_floats(op.inv_freq); }
void request(const RopeAppendOp& op, WeightRequests& requests) {
  requests.add_floats(op.q_norm);
  requests.add_floats(op.k_norm);
}
void request(const AttentionOp& op, WeightRequests& requests) { requests.add_floats(op.sinks); }
void request(const GatedRmsNormOp& op, WeightRequests& requests) {
  requests.add_floats(op.weight);
}
void request(const CausalConv1dOp& op, WeightRequests& requests) {
  requests.add_floats(op.weight);
  requests.add_floats(op.bias);
}
void request(const GatedDeltaRuleOp& op, WeightRequests& requests) {
  requests.add_floats(op.rate);
  requests.add_floats(op.dt_bias);
}
void request(const PermuteColumnsOp& op, WeightRequests& requests) {
  requests.add_floats(op.order);
}
void request(const MoeRouteOp& op, WeightRequests& requests) {
  requests.add_floats(op.routing.bias);
  requests.add_floats(op.routing.expert_scales);
}
void request(const MoeMatmulOp& op, WeightRequests& requests) {
  requests.add_unified(op.weight);
  requests.add_floats(op.bias);
}
template <class OpWithoutWeights>
void request(const OpWithoutWeights&, WeightRequests&) {}

bool has_codebooks(const WeightRef& weight) {
  return std::ranges::any_of(static_cast<const HostWeight&>(*weight).parts,
                             [](const WeightPart& part) { return uses_codebooks(part.type); });
}

bool reads_codebooks(const EmbedOp& op) { return has_codebooks(op.weight); }
bool reads_codebooks(const MatmulOp& op) { return has_codebooks(op.weight); }
bool reads_codebooks(const HeadMatmulOp& op) { return has_codebooks(op.weight); }
bool reads_codebooks(const MoeMatmulOp& op) { return has_codebooks(op.weight); }
template <class OtherOp>
bool reads_codebooks(const OtherOp&) {
  return false;
}

}  // namespace

void request_weights(const Program& program, WeightRequests& requests) {
  for (const Op& op : program.ops) {
    std::visit([&](const auto& typed) { request(typed, requests); }, op);
  }
}

bool needs_codebooks(const Program& program) {
  return std::ranges::any_of(program.ops, [](const Op& op) {
    return std::visit([](const auto& typed) { return reads_codebooks(typed); }, op);
  });
}

std::set<const DeviceKv*> missing_caches(const Program& program) {
  std::set<const DeviceKv*> caches;
  const auto note = [&](const KvRef& kv) {
    const DeviceKv& cache = device_kv(*kv);
    if (!cache.is_allocated()) caches.insert(&cache);
  };
  for (const Op& op : program.ops) {
    if (const auto* append = std::get_if<RopeAppendOp>(&op)) note(append->kv);
    if (const auto* attention = std::get_if<AttentionOp>(&op)) note(attention->kv);
  }
  return caches;
}

std::set<const DeviceSlots*> missing_states(const Program& program) {
  std::set<const DeviceSlots*> states;
  const auto note = [&](const StateRef& state) {
    const DeviceSlots& slots = device_slots(*state);
    if (!slots.is_allocated()) states.insert(&slots);
  };
  for (const Op& op : program.ops) {
    if (const auto* conv = std::get_if<CausalConv1dOp>(&op)) note(conv->state);
    if (const auto* delta = std::get_if<GatedDeltaRuleOp>(&op)) note(delta->state);
  }
  return states;
}

}  // namespace forge
