#pragma once

// The parts of planning that all GPUs share: iteration over operations, addresses of values, inputs
// and scratch memory, and the rows of each class of products. Each device derives a planner that
// turns operations into launches.
//
// Address is the device's argument of launches. A default-constructed address is null; adding bytes
// advances it.

#include <algorithm>
#include <vector>

#include "input_layout.h"
#include "rounding.h"
#include "step_needs.h"

namespace forge {

// Buffers that operations pass from one launch to the next (WorkspaceBytes).
template <class Address>
struct Workspace {
  Address routes{};
  Address scratch{};
};

// Addresses of the buffers of a step (StepBytes).
template <class Address>
struct PlanMemory {
  Address values{};
  Workspace<Address> workspace;
  Address codebooks{};    // of the weight types that look values up
  Address arrivals{};     // all 0 between launches
  Address results{};
};

// Input of planning.
template <class Address>
struct PlanRequest {
  const Program& program;
  const ScratchPlan& values;
  // Empty memory and inputs give a plan that only names its kernels and the workspace it needs.
  PlanMemory<Address> memory;
  StepShape shape;
  InputAddresses<Address> inputs;
};

// The launches of a step, in order.
template <class Entry>
struct LaunchPlan {
  std::vector<Entry> entries;
  std::vector<size_t> operations;  // of each entry; an entry may compute its neighbours too
  // The first entry of the sample operation.
  size_t sampling_begin = 0;
};

// Classes of rows, by the kind of product that computes them (step_work.h).
enum class RowKind { all, decode, prefill };

template <class Address>
struct RowGroup {
  RowKind kind = RowKind::all;  // all: `set` has no list
  RowSet<Address> set;
  uint32_t max_rows = 0;  // 0: no rows
};

template <class Address>
struct RowGroups {
  RowGroup<Address> all, decode, prefill;
};

// Operands of a product with experts: pairs of a row and one of its experts, chosen by a routing,
// or, without a routing, pairs of each row with every head in order.
struct RoutedPairs {
  ValueId route = 0;  // 0: none
  uint32_t n_experts = 0;
  uint32_t top_k = 0;      // experts of a row
  bool of_tokens = false;  // true if rows are those of tokens, false if of outputs
  bool operator==(const RoutedPairs&) const = default;
};

// Pairs of some rows, sorted by expert, in tiles of at most `tile_tokens` pairs.
template <class Address>
struct RouteGroups {
  RowKind rows = RowKind::all;
  uint32_t tile_tokens = 0;
  uint32_t max_pairs = 0;
  uint32_t max_tiles = 0;
  Address tiles{};    // MoeTile [max_tiles]
  Address n_tiles{};  // uint32_t
  Address pairs{};    // uint32_t [max_pairs]
};

template <class Address, class Entry>
class Planner {
 public:
  // Bytes that the launches need; valid after planning, with any addresses.
  const WorkspaceBytes& workspace_bytes() const { return needed_; }

 protected:
  explicit Planner(const PlanRequest<Address>& request)
      : program_(request.program),
        values_(request.values),
        memory_(request.memory),
        shape_(request.shape),
        inputs_(request.inputs) {}

  // Calls emit(op) for each operation that the shape has rows for.
  template <class Emit>
  LaunchPlan<Entry> plan_with(const Emit& emit) {
    for (op_index_ = 0; op_index_ < program_.ops.size(); ++op_index_) {
      scratch_used_ = 0;
      reported_op_ = op_index_;
      const bool is_sampling = std::holds_alternative<SampleOp>(program_.ops[op_index_]);
      visit_op(
          [&](const auto& op) {
            // Without outputs no operation follows the gathering of their rows.
            const bool has_token_rows = op.out == 0 ? !is_sampling : is_of_tokens(op.out);
            if (has_token_rows || shape_.outputs > 0) emit(op);
          },
          program_.ops[op_index_]);
      plan_.operations.resize(plan_.entries.size(), reported_op_);
      if (!is_sampling) plan_.sampling_begin = plan_.entries.size();
    }
    return std::move(plan_);
  }

  // Returns the operation `distance` after the current one if it is of this type, else null.
  template <class Op>
  const Op* next_op(size_t distance = 1) const {
    const size_t at = op_index_ + distance;
    return at < program_.ops.size() ? std::get_if<Op>(&program_.ops[at]) : nullptr;
  }

  // Goes on to the next operation, whose launches also compute this one. Profiles report them as
  // the next operation.
  void compute_with_next() {
    plan_.operations.resize(plan_.entries.size(), op_index_);
    reported_op_ = ++op_index_;
  }

  // Adds the launches of the operation `distance` after the current one before those of this one.
  // Profiles report them as that operation.
  template <class Emit>
  void compute_before(size_t distance, const Emit& emit) {
    plan_.operations.resize(plan_.entries.size(), op_index_);
    emit();
    plan_.operations.resize(plan_.entries.size(), op_index_ + distance);
  }

  // Returns the norm that follows a norm with a residual if one kernel can compute both, else null.
  // A block reads a row before it writes it, so the second result may overlap the inputs row by row
  // although it is planned to live after them.
  const RmsNormOp* second_norm(const RmsNormOp& op) const {
    const auto* next = next_op<RmsNormOp>();
    if (op.residual == 0 || !next || next->x != op.out || next->residual != 0) return nullptr;
    const bool of_rows = op.weight->cols == cols(op.x) && next->weight->cols == cols(op.x);
    if (!of_rows) return nullptr;
    const auto is_safe = [&](ValueId in) { return is_safe_over(program_, values_, next->out, in); };
    return is_safe(op.x) && is_safe(op.residual) ? next : nullptr;
  }

  Address value(ValueId id) const {
    return id == 0 ? Address{} : memory_.values + values_.offsets[id - 1] * sizeof(float);
  }
  uint32_t cols(ValueId id) const { return static_cast<uint32_t>(program_.value(id).cols); }
  bool is_of_tokens(ValueId id) const { return program_.value(id).rows == Rows::tokens; }
  // Address of the number of a value's rows, and its maximum in this shape.
  Address n_rows(ValueId id) const {
    return is_of_tokens(id) ? inputs_.n_tokens : inputs_.n_outputs;
  }
  uint32_t max_rows(ValueId id) const { return is_of_tokens(id) ? shape_.tokens : shape_.outputs; }

  // All rows of a value, and the rows of each class; a class may be empty.
  RowGroups<Address> row_groups(ValueId id) const {
    RowGroups<Address> groups;
    groups.all = {RowKind::all, {n_rows(id), {}}, max_rows(id)};
    if (is_of_tokens(id)) {
      groups.decode = {RowKind::decode, inputs_.decode_tokens, shape_.decode_tokens};
      groups.prefill = {RowKind::prefill, inputs_.prefill_tokens, shape_.prefill_tokens};
    } else {
      groups.decode = {RowKind::decode, inputs_.decode_outputs, shape_.decode_outputs};
      groups.prefill = {RowKind::prefill, inputs_.prefill_outputs, shape_.prefill_outputs};
    }
    // A list of all rows is redundant.
    if (groups.prefill.max_rows == 0) groups.decode = groups.all;
    if (groups.decode.max_rows == 0) groups.prefill = groups.all;
    return groups;
  }

  // Alignment of allocations in workspaces, for any vector load.
  static constexpr uint32_t kScratchAlignment = 256;

  // Counters for the current operation, all 0, to which it must return them.
  Address arrivals(uint64_t count) {
    needed_.arrivals = std::max(needed_.arrivals, count * sizeof(uint32_t));
    return memory_.arrivals;
  }

  // Allocates memory for the current operation.
  Address scratch(uint64_t bytes) {
    const Address at = memory_.workspace.scratch + scratch_used_;
    scratch_used_ += padded_to(bytes, kScratchAlignment);
    needed_.scratch = std::max(needed_.scratch, scratch_used_);
    return at;
  }

  // Returns the pairs of some rows, sorted by expert. Neighbouring products share them: only the
  // first call runs `sort(groups)`, which launches the kernel. The result is valid until the next
  // call.
  template <class Sort>
  const RouteGroups<Address>& group_by_expert(const RoutedPairs& routed,
                                              const RowGroup<Address>& rows, uint32_t tile_tokens,
                                              const Sort& sort) {
    if (routed_ != routed) {
      routed_ = routed;
      groups_.clear();
      routes_used_ = 0;
    }
    for (const RouteGroups<Address>& known : groups_) {
      if (known.rows == rows.kind && known.tile_tokens == tile_tokens) return known;
    }
    const uint32_t pairs = rows.max_rows * routed.top_k;
    // Each expert has at most one partial tile.
    const uint32_t max_tiles = std::min(pairs, routed.n_experts + pairs / tile_tokens);
    const RouteGroups<Address> groups{.rows = rows.kind,
                                      .tile_tokens = tile_tokens,
                                      .max_pairs = pairs,
                                      .max_tiles = max_tiles,
                                      .tiles = route_memory(max_tiles * sizeof(MoeTile)),
                                      .n_tiles = route_memory(sizeof(uint32_t)),
                                      .pairs = route_memory(pairs * sizeof(uint32_t))};
    sort(groups);
    return groups_.emplace_back(groups);
  }

  const Program& program_;
  const ScratchPlan& values_;
  const PlanMemory<Address> memory_;
  const StepShape shape_;
  const InputAddresses<Address> inputs_;
  LaunchPlan<Entry> plan_;
  uint64_t scratch_used_ = 0;
  size_t op_index_ = 0;     // of the current operation
  size_t reported_op_ = 0;  // of the operation that profiles name for the current launches

 private:
  // Allocates memory that lasts until other pairs are grouped.
  Address route_memory(uint64_t bytes) {
    const Address at = memory_.workspace.routes + routes_used_;
    routes_used_ += padded_to(bytes, kScratchAlignment);
    needed_.routes = std::max(needed_.routes, routes_used_);
    return at;
  }

  WorkspaceBytes needed_;
  uint64_t routes_used_ = 0;
  RoutedPairs routed_;  // of groups_
  std::vector<RouteGroups<Address>> groups_;
};

}  // namespace forge
