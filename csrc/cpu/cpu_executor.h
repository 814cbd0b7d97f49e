#pragma once

// Runs a program operation by operation, each divided among the threads of the device. The
// operations are in operations/*_ops.cpp, by kind.

#include <algorithm>
#include <memory>
#include <vector>

#include "../common/host_executor.h"
#include "cpu_weight.h"
#include "host/cpu_device.h"
#include "host/memory.h"
#include "operations/attention.h"
#include "operations/products.h"
#include "operations/sampling.h"

namespace forge::cpu {

class CpuExecutor : public HostExecutor {
 public:
  CpuExecutor(std::shared_ptr<const Program> program, std::shared_ptr<CpuDevice> device,
              const RankLinks& links);

  void run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) override;

 private:
  // Returns the rows of a value stored as blocks, or null for other values.
  ActivationBlock* blocks_of(ValueId id) const;
  // Returns a value as rows of `cols` that a product multiplies.
  Activations activations(const PackedWeight& weight, ValueId x, uint64_t cols);
  // Calls compute(row t of a value) and stores the row as floats or as blocks.
  template <class Compute>
  void write_row(ValueId id, uint64_t t, uint32_t thread, Compute&& compute) {
    const Matrix out = matrix(id);
    ActivationBlock* blocks = blocks_of(id);
    if (!blocks) return compute(out.row(t));
    float* row = rows_[thread].data();
    compute(row);
    kernels_.quantize(row, out.cols, blocks + t * (out.cols / kBlockCols));
  }

  // Calls the kernel of an operation on one number at a time for every row.
  template <class Op, class Kernel>
  void map_rows(const Op& op, Kernel* kernel);

  // Prepares an operation once, before the first run: packed weights, floats, scratch.
  template <class OpType>
  void prepare(const OpType&) {}
  void prepare(const RmsNormOp& op);
  void prepare(const LayerNormOp& op);
  void prepare(const MatmulOp& op);
  void prepare(const HeadMatmulOp& op);
  void prepare(const LoraOp& op);
  void prepare(const RopeTableOp& op);
  void prepare(const RopeAppendOp& op);
  void prepare(const AttentionOp& op);
  void prepare(const GatedRmsNormOp& op);
  void prepare(const CausalConv1dOp& op);
  void prepare(const GatedDeltaRuleOp& op);
  void prepare(const SelectiveScanOp& op);
  void prepare(const PermuteColumnsOp& op);
  void prepare(const MoeRouteOp& op);
  void prepare(const MoeMatmulOp& op);
  void prepare(const GluOp& op);
  // Grows the row of each thread to at least `cols` floats.
  void reserve_row(uint64_t cols);
  void prepare_product(const Weight& weight, uint64_t group_rows, ValueId x);
  // Allocates panels until the memory bound of the device is reached: first for the weights that
  // every token needs, in their order, then for a share of the experts.
  void place_weights();
  // Brings the experts that tokens chose into memory, and has the system read those of the next
  // product with the same route.
  void bring_experts(PackedWeight& weight, ValueId route);

#define FORGE_DECLARE(AnyOp) void execute(const AnyOp& op);
  FORGE_OPERATIONS(FORGE_DECLARE)
#undef FORGE_DECLARE

  // Gives the pages that tokens are stored in memory of the NUMA nodes.
  void place_pages(CpuKv& kv, uint64_t n_tokens);

  // Calls body(row, thread) for each row, in pieces large enough to amortise waking a thread.
  template <class Body>
  void for_rows(uint64_t n_rows, uint64_t cols, Body&& body) {
    constexpr uint64_t kElements = 16384;
    const uint64_t piece = std::max<uint64_t>(1, kElements / cols);
    const auto pieces = static_cast<uint32_t>((n_rows + piece - 1) / piece);
    device_->pool.run(pieces, [&](uint32_t index, uint32_t thread) {
      const uint64_t end = std::min(n_rows, (index + 1) * piece);
      for (uint64_t row = index * piece; row < end; ++row) body(row, thread);
    });
  }

  std::shared_ptr<CpuDevice> device_;
  const KernelTable& kernels_;
  // For each operation: see find_gated_units.
  std::vector<const GluOp*> gated_units_;
  // For each value: see find_block_values.
  std::vector<bool> is_blocks_;
  Memory arena_;

  Products products_;
  Attention attention_;
  Sampling sampling_;
  // For each operation; null for all but products.
  std::vector<PackedWeight*> packed_;
  // A row for each thread: the keys of a token, or floats to be quantised.
  std::vector<std::vector<float>> rows_;
  // For each operation: the transposed weight of a convolution, [width, cols].
  std::vector<std::vector<float>> taps_;
  // For each row and rank of an adapter: the product of both, scaled (lora).
  std::vector<float> rank_products_;
  // For each run of tokens of a sequence: the preceding rows, from the slot.
  std::vector<float> conv_rows_;
  // For each thread: q, k, beta and decay of some tokens of a head (delta rule).
  std::vector<std::vector<float>> delta_tokens_;

  // The operation being prepared or executed.
  size_t op_index_ = 0;

  // Overwritten by each product; members so that their memory is reused.
  std::vector<MatmulToken> tokens_;
  std::vector<ProductGroup> groups_;

  std::shared_ptr<const void> taken_;
  std::vector<uint32_t> chosen_;  // the experts of a product
  std::unique_ptr<ReadAhead> read_ahead_;
  std::unique_ptr<Packing> packing_;
};

// Returns the floats of a weight, or null for a missing optional one.
inline const float* floats_of(const WeightRef& weight) {
  return weight ? static_cast<const CpuWeight&>(*weight).floats() : nullptr;
}

}  // namespace forge::cpu
