#pragma once

// Planning of the operations that CUDA and Metal compute by kernels of the same names and arguments
// (kernels/arguments): rows of activations, gates, and norms. A device adds its launches.

#include <span>
#include <string>
#include <tuple>

#include "launch_geometry.h"
#include "planner.h"
#include "weight_format.h"

namespace forge {

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
         .tokens = inputs_.tokens,
         .n_tokens = inputs_.n_tokens,
         .weight = weight.at,
         .codebooks = memory_.codebooks},
        {.row_stride = weight.row_bytes, .cols = cols(op.out), .scale = op.scale},
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
                                       .eps = op.eps,
                                       .activation = op.activation});
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
    std::apply(launch_with, op.operands());
  }
};

}  // namespace forge
