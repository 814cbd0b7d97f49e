#pragma once

// Planning of the operations that CUDA and Metal compute by kernels of the same names and arguments
// (kernels/arguments). A device adds its launches.

#include <algorithm>
#include <bit>
#include <span>
#include <string>
#include <tuple>

#include "device_caches.h"
#include "launch_geometry.h"
#include "planner.h"
#include "weight_format.h"

namespace forge {

// Only the first piece of a run of causal_conv1d has rows from before the run.
static_assert(kernel_args::kConvTokens + 1 >= kMostConvWidth);

// The rows of a weight in one type.
template <class Address>
struct UniformRows {
  WeightType type;
  uint64_t row_bytes;
  Address at{};
};

template <class Address, class Entry>
class SharedOperations : public Planner<Address, Entry> {
 protected:
  using Base = Planner<Address, Entry>;
  using Base::cols;
  using Base::inputs_;
  using Base::max_rows;
  using Base::memory_;
  using Base::n_rows;
  using Base::shape_;
  using Base::value;

  explicit SharedOperations(const PlanRequest<Address>& request) : Base(request) {}
  ~SharedOperations() = default;

  // Appends the launch of a kernel with the addresses of its buffers and the bytes of its scalars.
  // `instance` is its name with template arguments.
  virtual void add_launch(const char* kernel, const std::string& instance,
                          const Geometry& geometry, std::span<const Address> buffers,
                          std::span<const uint8_t> scalars) = 0;
  // The floats of an optional vector weight; null if it is missing.
  virtual Address floats(const WeightRef& weight) const = 0;
  virtual UniformRows<Address> uniform_rows(const WeightRef& weight) const = 0;
  // The numbers of a cache.
  virtual Address numbers(const KvRef& kv) const = 0;
  virtual Address numbers(const StateRef& state) const = 0;
  // Bytes of shared memory in which fused_residual_rms_norm keeps a row.
  virtual uint64_t kept_row_bytes(uint32_t cols) const = 0;

  // Appends the launch of kernel K. `arguments`, if any, are its template arguments, as in
  // "<FormatQ8_0>".
  template <class K>
  void launch(const Geometry& geometry, const typename K::template Buffers<Address>& buffers,
              const typename K::Args& scalars, const std::string& arguments = "") {
    static_assert(sizeof(buffers) % sizeof(Address) == 0);
    add_launch(K::kName, K::kName + arguments, geometry,
               {reinterpret_cast<const Address*>(&buffers), sizeof(buffers) / sizeof(Address)},
               {reinterpret_cast<const uint8_t*>(&scalars), sizeof(scalars)});
  }
  template <class K>
  void launch(uint32_t rows, const typename K::template Buffers<Address>& buffers,
              const typename K::Args& scalars, const std::string& arguments = "") {
    launch<K>(geometry(scalars, rows), buffers, scalars, arguments);
  }

  void emit(const EmbedOp& op) {
    const UniformRows<Address> weight = uniform_rows(op.weight);
    launch<kernel_args::Embed>(
        shape_.tokens,
        {.out = value(op.out),
         .ids = inputs_.tokens,
         .n_tokens = inputs_.n_tokens,
         .weight = weight.at,
         .x = value(0),
         .codebooks = memory_.codebooks},
        {.row_stride = weight.row_bytes,
         .cols = cols(op.out),
         .scale = op.scale,
         .period = 1,
         .rows = static_cast<uint32_t>(op.weight->rows),
         .has_x = 0},
        "<" + weight_format(weight.type).name + ">");
  }

  void emit(const AddEmbeddingOp& op) {
    const UniformRows<Address> weight = uniform_rows(op.weight);
    launch<kernel_args::Embed>(
        shape_.tokens,
        {.out = value(op.out),
         .ids = op.period ? inputs_.tokens : inputs_.positions,
         .n_tokens = inputs_.n_tokens,
         .weight = weight.at,
         .x = value(op.x),
         .codebooks = memory_.codebooks},
        {.row_stride = weight.row_bytes,
         .cols = cols(op.out),
         .scale = 1,
         .period = std::max(op.period, 1u),
         .rows = static_cast<uint32_t>(op.weight->rows),
         .has_x = 1},
        "<" + weight_format(weight.type).name + ">");
  }

  void emit_norm(const RmsNormOp& op) {
    const auto n = static_cast<uint32_t>(op.weight->cols);
    launch<kernel_args::RmsNorm>(max_rows(op.out),
                                 {.out = value(op.out),
                                  .x = value(op.x),
                                  .weight = floats(op.weight),
                                  .residual = value(op.residual),
                                  .n_rows = n_rows(op.x)},
                                 {.cols = n,
                                  .groups = cols(op.x) / n,
                                  .weight_groups = static_cast<uint32_t>(op.weight->rows),
                                  .eps = op.eps,
                                  .offset = op.weight_offset,
                                  .has_residual = op.residual != 0});
  }

  // Emits one launch for a norm with a residual and the norm of its result, which is the next
  // operation.
  void emit_two_norms(const RmsNormOp& op, const RmsNormOp& next) {
    const kernel_args::FusedResidualRmsNormArgs args{.cols = cols(op.x),
                                                     .eps = op.eps,
                                                     .offset = op.weight_offset,
                                                     .next_eps = next.eps,
                                                     .next_offset = next.weight_offset,
                                                     .has_x_weight = 1};
    Geometry shape = geometry(args, max_rows(op.out));
    shape.group.memory = kept_row_bytes(args.cols);
    launch<kernel_args::FusedResidualRmsNorm>(shape,
                                              {.out = value(next.out),
                                               .sum = value(op.out),
                                               .x = value(op.x),
                                               .x_weight = floats(op.weight),
                                               .residual = value(op.residual),
                                               .weight = floats(next.weight),
                                               .n_rows = n_rows(op.x)},
                                              args);
    ++this->op_index_;
  }

  void emit(const LayerNormOp& op) {
    launch<kernel_args::LayerNorm>(
        max_rows(op.out),
        {.out = value(op.out),
         .x = value(op.x),
         .weight = floats(op.weight),
         .bias = floats(op.bias),
         .n_rows = n_rows(op.x)},
        {.cols = cols(op.x), .eps = op.eps, .has_bias = op.bias != nullptr});
  }

  void emit(const LoraOp& op) {
    const auto n_ranks = static_cast<uint32_t>(op.ranks->rows);
    const auto n_results = static_cast<uint32_t>(this->program_.results_a_row(op));
    const uint32_t max_results = max_rows(op.x) * n_results;
    const Address products = this->scratch(uint64_t{max_results} * n_ranks * sizeof(float));
    launch<kernel_args::LoraProducts>(
        max_results,
        {.products = products,
         .x = value(op.x),
         .route = value(op.route),
         .a = floats(op.a),
         .ranks = floats(op.ranks),
         .scales = inputs_.adapter_scales,
         .sequences = inputs_.sequences,
         .output_rows = inputs_.output_rows,
         .n_rows = n_rows(op.x)},
        {.cols = static_cast<uint32_t>(op.a->cols),
         .x_cols = cols(op.x),
         .n_ranks = n_ranks,
         .n_results = n_results,
         .a_step = op.a_step(),
         .routed = op.route != 0,
         .n_adapters = op.n_adapters,
         .of_outputs = !this->is_of_tokens(op.x)});
    launch<kernel_args::LoraSums>(max_results,
                                  {.out = value(op.out),
                                   .y = value(op.y),
                                   .products = products,
                                   .route = value(op.route),
                                   .b = floats(op.b),
                                   .ranks = floats(op.ranks),
                                   .residual = value(op.residual),
                                   .n_rows = n_rows(op.out)},
                                  {.cols = cols(op.out) / n_results,
                                   .n_ranks = n_ranks,
                                   .n_results = n_results,
                                   .b_step = op.b_step(),
                                   .routed = op.route != 0,
                                   .width = static_cast<uint32_t>(op.b->cols),
                                   .alpha = op.alpha,
                                   .activation = op.activation,
                                   .has_residual = op.residual != 0});
  }

  void emit(const RopeTableOp& op) {
    launch<kernel_args::RopeTable>(shape_.tokens,
                                   {.out = value(op.out),
                                    .positions = inputs_.positions,
                                    .inv_freq = floats(op.inv_freq),
                                    .n_tokens = inputs_.n_tokens},
                                   {.n_freqs = cols(op.out) / 2, .scale = op.scale});
  }

  void emit(const GluOp& op) {
    launch<kernel_args::Glu>(
        max_rows(op.out), {.out = value(op.out), .x = value(op.x), .n_rows = n_rows(op.x)},
        {.out_cols = cols(op.out), .width = op.width, .unit = op.unit});
  }

  void emit(const GatherColumnsOp& op) {
    kernel_args::GatherColumnsArgs args{.out_cols = cols(op.out),
                                        .group_cols = static_cast<uint32_t>(op.group_cols()),
                                        .pieces = {}};
    for (size_t p = 0; p < op.pieces.size(); ++p) {
      const auto& [from, width, first, step, scale] = op.pieces[p];
      if (from != 0) args.pieces[p] = {cols(from), width, first, step, scale};
    }
    launch<kernel_args::GatherColumns>(max_rows(op.out),
                                       {.out = value(op.out),
                                        .x0 = value(op.pieces[0].value),
                                        .x1 = value(op.pieces[1].value),
                                        .x2 = value(op.pieces[2].value),
                                        .n_rows = n_rows(op.out)},
                                       args);
  }

  void emit(const PermuteColumnsOp& op) {
    launch<kernel_args::PermuteColumns>(max_rows(op.out),
                                        {.out = value(op.out),
                                         .x = value(op.x),
                                         .order = floats(op.order),
                                         .route = value(op.route),
                                         .n_rows = n_rows(op.out)},
                                        {.x_cols = cols(op.x),
                                         .cols = static_cast<uint32_t>(op.order->cols),
                                         .out_cols = cols(op.out),
                                         .routed = op.route != 0});
  }

  // Only devices that join groups record these.
  [[noreturn]] void emit(const AllReduceOp& op) { fail_alone(op.kName); }
  [[noreturn]] void emit(const SendOp& op) { fail_alone(op.kName); }
  [[noreturn]] void emit(const ReceiveOp& op) { fail_alone(op.kName); }
  [[noreturn]] static void fail_alone(const char* operation) {
    fail(FORGE_UNSUPPORTED, operation, ": this device joins no group");
  }

  void emit(const GatherOutputsOp& op) {
    launch<kernel_args::GatherOutputs>(shape_.outputs,
                                       {.out = value(op.out),
                                        .x = value(op.x),
                                        .output_rows = inputs_.output_rows,
                                        .n_outputs = inputs_.n_outputs},
                                       {.cols = cols(op.x)});
  }

  void emit(const SigmoidGateOp& op) {
    launch<kernel_args::SigmoidGate>(
        max_rows(op.out),
        {.out = value(op.out),
         .x = value(op.x),
         .gate = value(op.gate),
         .residual = value(op.residual),
         .n_rows = n_rows(op.x)},
        {.cols = cols(op.x), .gates = cols(op.gate), .has_residual = op.residual != 0});
  }

  void emit(const GatedRmsNormOp& op) {
    launch<kernel_args::GatedRmsNorm>(max_rows(op.out),
                                      {.out = value(op.out),
                                       .x = value(op.x),
                                       .gate = value(op.gate),
                                       .weight = floats(op.weight),
                                       .n_rows = n_rows(op.x)},
                                      {.cols = cols(op.x),
                                       .width = static_cast<uint32_t>(op.weight->cols),
                                       .weight_groups = static_cast<uint32_t>(op.weight->rows),
                                       .eps = op.eps,
                                       .activation = op.activation});
  }

  kernel_args::RopeAppendArgs rope_append_args(const RopeAppendOp& op) const {
    const auto width_of = [](const WeightRef& weight) {
      return weight ? static_cast<uint32_t>(weight->cols) : 0;
    };
    return {.kv = device_kv(*op.kv).kernel_pages(),
            .page_stride = inputs_.page_stride,
            .n_heads = op.n_heads,
            .q_norm_width = width_of(op.q_norm),
            .k_norm_width = width_of(op.k_norm),
            .eps = op.eps,
            .offset = op.weight_offset,
            .n_freqs = op.rope ? cols(op.rope) / 2 : 0,
            .first_rotated = op.rope ? op.first_rotated(cols(op.rope)) : 0,
            .interleaved = op.rope_layout == FORGE_ROPE_INTERLEAVED};
  }

  void emit(const RopeAppendOp& op) {
    emit_rope_append(op, geometry(rope_append_args(op), shape_.tokens));
  }
  void emit_rope_append(const RopeAppendOp& op, const Geometry& geometry) {
    launch<kernel_args::RopeAppend>(
        geometry,
        {.q = value(op.out),
         .qkv = value(op.qkv),
         .pages = numbers(op.kv),
         .positions = inputs_.positions,
         .sequences = inputs_.sequences,
         .page_tables = inputs_.page_tables,
         .n_tokens = inputs_.n_tokens,
         .copies = inputs_.copies,
         .n_copies = inputs_.n_copies,
         .q_norm = floats(op.q_norm),
         .k_norm = floats(op.k_norm),
         .rope = value(op.rope)},
        rope_append_args(op), std::string("<") + device_kv(*op.kv).element() + ">");
  }

  void emit(const PreviousRowsOp& op) {
    const DeviceKv& kv = device_kv(*op.kv);
    launch<kernel_args::PreviousRows>(shape_.tokens,
                                      {.out = value(op.out),
                                       .x = value(op.x),
                                       .pages = numbers(op.kv),
                                       .positions = inputs_.positions,
                                       .sequences = inputs_.sequences,
                                       .page_tables = inputs_.page_tables,
                                       .n_tokens = inputs_.n_tokens,
                                       .parents = inputs_.parents,
                                       .copies = inputs_.copies,
                                       .n_copies = inputs_.n_copies},
                                      {.kv = kv.kernel_pages(),
                                       .page_stride = inputs_.page_stride,
                                       .has_x = op.x != 0},
                                      std::string("<") + kv.element() + ">");
  }

  void emit(const MoeRouteOp& op) {
    launch<kernel_args::MoeRoute>(max_rows(op.logits),
                                  {.out = value(op.out),
                                   .logits = value(op.logits),
                                   .bias = floats(op.bias),
                                   .expert_scales = floats(op.expert_scales),
                                   .n_tokens = n_rows(op.logits)},
                                  {.n_experts = cols(op.logits),
                                   .top_k = op.top_k,
                                   .normalize = op.normalize,
                                   .scale = op.scale,
                                   .scores = op.scores,
                                   .n_groups = op.n_groups,
                                   .top_groups = op.top_groups,
                                   .threshold = op.threshold,
                                   .has_bias = op.bias != nullptr,
                                   .has_expert_scales = op.expert_scales != nullptr});
  }

  void emit(const MoeCombineOp& op) {
    launch<kernel_args::MoeCombine>(
        max_rows(op.out),
        {.out = value(op.out),
         .x = value(op.x),
         .route = value(op.route),
         .residual = value(op.residual),
         .n_tokens = n_rows(op.x)},
        {.cols = cols(op.out), .top_k = cols(op.route) / 2, .has_residual = op.residual != 0});
  }

  // Emits the kernel that sorts the pairs of some rows by expert; a product with all heads has no
  // `route`. `group` is that of moe_group.
  void emit_groups(const RouteGroups<Address>& groups, const RowGroup<Address>& rows, ValueId route,
                   uint32_t n_experts, uint32_t top_k, const Group& group) {
    if (route == 0) {
      launch<kernel_args::HeadGroups>(rows.max_rows,
                                      {.tiles = groups.tiles,
                                       .n_tiles = groups.n_tiles,
                                       .pairs = groups.pairs,
                                       .n_tokens = rows.set.count},
                                      {.n_heads = n_experts, .tile_tokens = groups.tile_tokens});
      return;
    }
    launch<kernel_args::MoeGroup>({{1}, group},
                                  {.tiles = groups.tiles,
                                   .n_tiles = groups.n_tiles,
                                   .pairs = groups.pairs,
                                   .route = value(route),
                                   .n_tokens = rows.set.count,
                                   .row_list = rows.set.list},
                                  {.n_experts = n_experts,
                                   .top_k = top_k,
                                   .tile_tokens = groups.tile_tokens,
                                   .has_row_list = rows.kind != RowKind::all});
  }

  void emit(const CausalConv1dOp& op) {
    const kernel_args::CausalConv1dArgs args{
        .slot_stride = device_state(*op.state).stride(),
        .cols = cols(op.x),
        .width = static_cast<uint32_t>(op.weight->cols),
        .activation = op.activation,
        .has_bias = op.bias != nullptr};
    launch<kernel_args::CausalConv1d>(geometry(args, shape_.slots, shape_.prefill_tokens),
                                      {.out = value(op.out),
                                       .x = value(op.x),
                                       .weight = floats(op.weight),
                                       .bias = floats(op.bias),
                                       .state = numbers(op.state),
                                       .runs = inputs_.slots},
                                      args);
  }

  // `lane_rows` is the template argument of the kernel.
  void emit_delta_rule(const GatedDeltaRuleOp& op, uint32_t lane_rows) {
    launch<kernel_args::GatedDeltaRule>(shape_.slots,
                                        {.out = value(op.out),
                                         .qkv = value(op.qkv),
                                         .ba = value(op.ba),
                                         .rate = floats(op.rate),
                                         .dt_bias = floats(op.dt_bias),
                                         .state = numbers(op.state),
                                         .runs = inputs_.slots},
                                        {.slot_stride = device_state(*op.state).stride(),
                                         .n_k_heads = op.n_k_heads,
                                         .n_v_heads = op.n_v_heads(),
                                         .k_dim = op.k_dim(),
                                         .v_dim = op.v_dim(),
                                         .is_tiled = op.head_order,
                                         .scale = op.scale,
                                         .eps = op.eps},
                                        "<" + std::to_string(lane_rows) + ">");
  }

  void emit(const SelectiveScanOp& op) {
    using namespace kernel_args;
    require(op.d_state() <= kMostScanStates, "selective_scan: states of ", op.d_state(),
            " numbers a column; a GPU takes up to ", kMostScanStates);
    const uint32_t fours = std::bit_ceil(divide_up(op.d_state(), 4 * kScanLanes));
    launch<SelectiveScan>(shape_.slots,
                          {.out = value(op.out),
                           .xbc = value(op.xbc),
                           .dt = value(op.dt),
                           .gate = value(op.gate),
                           .rate = floats(op.rate),
                           .dt_bias = floats(op.dt_bias),
                           .skip = floats(op.skip),
                           .state = numbers(op.state),
                           .runs = inputs_.slots},
                          {.slot_stride = device_state(*op.state).stride(),
                           .n_heads = op.n_heads(),
                           .n_groups = op.n_groups,
                           .d_state = op.d_state(),
                           .head_dim = op.head_dim(),
                           .has_gate = op.gate != 0,
                           .dt_min = op.dt_min,
                           .dt_max = op.dt_max},
                          "<" + std::to_string(std::max(fours, 2u)) + ">");
  }

#define FORGE_EMIT_MAP(Name, kernel) \
  void emit(const Name##Op& op) { emit_map<kernel_args::Name>(op); }
  KERNEL_MAPS(FORGE_EMIT_MAP)
#undef FORGE_EMIT_MAP

 private:
  template <class K, class Op>
  void emit_map(const Op& op) {
    const auto launch_with = [&](const Input& x, auto... numbers) {
      launch<K>(max_rows(op.out), {.out = value(op.out), .x = value(x), .n_rows = n_rows(x)},
                typename K::Args{cols(x), numbers...});
    };
    op.with_operands(launch_with);
  }
};

}  // namespace forge
