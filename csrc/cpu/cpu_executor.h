#pragma once

// Runs a program operation by operation, each dealt out to the threads of the device. The
// operations are those of forge.h; *_ops.cpp hold them by kind.

#include <algorithm>
#include <memory>
#include <vector>

#include "../common/program.h"
#include "../common/scratch_plan.h"
#include "../common/step_inputs.h"
#include "attention.h"
#include "cpu_device.h"
#include "cpu_weight.h"
#include "memory.h"
#include "packing.h"
#include "products.h"
#include "sampling.h"

namespace forge::cpu {

class CpuExecutor : public Executable {
 public:
  CpuExecutor(std::shared_ptr<const Program> program, std::shared_ptr<CpuDevice> device);

  void run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) override;
  void read(uint32_t value, uint64_t first_row, uint64_t n_rows, float* out) const override;

 private:
  // A row-major matrix of the arena; data is null for value 0.
  struct Matrix {
    float* data;
    uint64_t rows;
    uint64_t cols;
    float* row(uint64_t i) const { return data ? data + i * cols : nullptr; }
  };
  Matrix matrix(ValueId id) const;

  // The rows of a value that is kept as blocks; null for any other.
  ActivationBlock* blocks_of(ValueId id) const;
  // The rows that a product multiplies, as signed bytes; null where its weight needs none.
  const ActivationBlock* quantized(const PackedWeight& weight, ValueId x);
  // Calls compute(row t of a value) and keeps what it wrote, as floats or as blocks.
  template <class Compute>
  void write_row(ValueId id, uint64_t t, uint32_t thread, Compute&& compute) {
    const Matrix out = matrix(id);
    ActivationBlock* blocks = blocks_of(id);
    if (!blocks) return compute(out.row(t));
    float* row = rows_[thread].data();
    compute(row);
    kernels_.quantize(row, out.cols, blocks + t * (out.cols / kBlockCols));
  }

  // Makes what an operation needs beyond its inputs, once, before the first run.
  template <class OpType>
  void prepare(const OpType&) {}
  void prepare(const RmsNormOp& op);
  void prepare(const LayerNormOp& op);
  void prepare(const MatmulOp& op);
  void prepare(const HeadMatmulOp& op);
  void prepare(const RopeTableOp& op);
  void prepare(const RopeAppendOp& op);
  void prepare(const AttentionOp& op);
  void prepare(const GatedRmsNormOp& op);
  void prepare(const CausalConv1dOp& op);
  void prepare(const GatedDeltaRuleOp& op);
  void prepare(const PermuteColumnsOp& op);
  void prepare(const MoeRouteOp& op);
  void prepare(const MoeMatmulOp& op);
  void prepare(const GluOp& op);
  // Makes room in the threads' rows.
  void reserve_row(uint64_t cols);
  void prepare_product(const Weight& weight, uint64_t group_rows, ValueId x);

#define FORGE_DECLARE(AnyOp) void execute(const AnyOp& op);
  FORGE_OPERATIONS(FORGE_DECLARE)
#undef FORGE_DECLARE

  // Calls body(row, thread) for each row, in pieces large enough to be worth handing to a thread.
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

  std::shared_ptr<const Program> program_;
  std::shared_ptr<CpuDevice> device_;
  const KernelTable& kernels_;
  // Per operation: see find_gated_units.
  std::vector<const GluOp*> gated_units_;
  // Per value: see find_block_values.
  std::vector<bool> is_blocks_;
  ScratchPlan plan_;
  Memory arena_;

  Products products_;
  Attention attention_;
  Sampling sampling_;
  // Per operation; only products have any.
  std::vector<PackedWeight*> packed_;
  // A row for each thread: the keys of a token, or what becomes blocks.
  std::vector<std::vector<float>> rows_;
  // Per operation: the weights of convolutions, [width, cols].
  std::vector<std::vector<float>> taps_;
  // What slots kept of the rows before, for each run of a sequence's tokens.
  std::vector<float> conv_rows_;
  // What the delta rule makes of some tokens of a head, for each thread.
  std::vector<std::vector<float>> delta_tokens_;

  // Of the run under way.
  const StepInputs* inputs_ = nullptr;
  ResultBlock* results_ = nullptr;
  const StopFlag* stop_ = nullptr;
  size_t op_index_ = 0;

  // Filled anew by each product; members so that their memory is used again.
  std::vector<MatmulToken> tokens_;
  std::vector<ProductGroup> groups_;

  std::unique_ptr<Packing> packing_;
};

// The floats of an optional vector weight.
inline const float* floats_of(const WeightRef& weight) {
  return weight ? static_cast<const CpuWeight&>(*weight).floats() : nullptr;
}

}  // namespace forge::cpu
