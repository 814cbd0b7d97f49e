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

void PlanBuilder::emit(const SampleOp& op) {
  using namespace cuda_args;
  const SamplingArgs args{
      .vocabulary = cols(op.logits), .max_top = op.max_top, .mask_words = inputs_.mask_words};
  const uint32_t outputs = shape_.outputs, n_chunks = divide_up(args.vocabulary, kChunk);
  const auto memory = [&](uint64_t of_output, size_t bytes) {
    return scratch(outputs * of_output * bytes);
  };
  const DevicePointer logits = value(op.logits), blocks = arrivals(outputs);
  const DevicePointer rows = memory(1, sizeof(DrawnRow));
  const DevicePointer adjusted = memory(args.vocabulary, sizeof(float));
  const DevicePointer maxima = memory(n_chunks, sizeof(float));
  const DevicePointer sums = memory(n_chunks, sizeof(float));
  const DevicePointer bests = memory(n_chunks, sizeof(uint64_t));
  const DevicePointer histograms = memory(kBuckets, sizeof(uint64_t));
  const Geometry by_chunk = chunk_geometry(args, outputs);

  launch<SummarizeLogits>(by_chunk,
                          {.results = memory_.results,
                           .rows = rows,
                           .adjusted = adjusted,
                           .maxima = maxima,
                           .sums = sums,
                           .bests = bests,
                           .histograms = histograms,
                           .arrivals = blocks,
                           .logits = logits,
                           .sampling = inputs_.sampling,
                           .history = inputs_.history,
                           .bias_ids = inputs_.bias_ids,
                           .bias_values = inputs_.bias_values,
                           .masks = inputs_.masks,
                           .n_outputs = inputs_.n_outputs},
                          args);
  if (shape_.draws) {
    launch<ShareHistogram>(by_chunk,
                           {.histograms = histograms,
                            .rows = rows,
                            .logits = logits,
                            .adjusted = adjusted,
                            .sampling = inputs_.sampling},
                           args);
    launch<DrawToken>(by_chunk,
                      {.results = memory_.results,
                       .rows = rows,
                       .masses = memory(n_chunks, sizeof(uint64_t)),
                       .lists = memory(kListed, sizeof(uint64_t)),
                       .arrivals = blocks,
                       .histograms = histograms,
                       .bests = bests,
                       .logits = logits,
                       .adjusted = adjusted,
                       .sampling = inputs_.sampling},
                      args);
  }
  if (op.max_top == 0 || !shape_.reports_top) return;
  launch<TopKCandidates>({{outputs}, {1024}},
                         {.results = memory_.results,
                          .logits = logits,
                          .maxima = maxima,
                          .sums = sums,
                          .next_logits = memory(n_chunks, sizeof(float)),
                          .next_ids = memory(n_chunks, sizeof(uint32_t)),
                          .sampling = inputs_.sampling,
                          .n_outputs = inputs_.n_outputs},
                         args);
}

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
