#pragma once

// The plain float32 implementation of every operation: one loop nest each, sums in double, nothing
// fast. It is what the kernels of every other backend are tested against.

#include <memory>
#include <vector>

#include "../common/program.h"
#include "../common/scratch_plan.h"
#include "../common/step_inputs.h"

namespace forge::reference {

class Executor : public Executable {
 public:
  explicit Executor(std::shared_ptr<const Program> program);

  void run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) override;
  void read(uint32_t value, uint64_t first_row, uint64_t n_rows, float* out) const override;

 private:
  // One row-major matrix of the arena.
  struct Matrix {
    float* data;
    uint64_t rows;
    uint64_t cols;
    float* row(uint64_t i) const { return data + i * cols; }
  };
  Matrix matrix(ValueId id);

  void execute(const EmbedOp& op);
  void execute(const RmsNormOp& op);
  void execute(const LayerNormOp& op);
  void execute(const MatmulOp& op);
  void execute(const HeadMatmulOp& op);
  void execute(const RopeTableOp& op);
  void execute(const RopeAppendOp& op);
  void execute(const AttentionOp& op);
  void execute(const GluOp& op);
  void execute(const SigmoidGateOp& op);
  void execute(const GatedRmsNormOp& op);
  void execute(const CausalConv1dOp& op);
  void execute(const GatedDeltaRuleOp& op);
  void execute(const GatherColumnsOp& op);
  void execute(const PermuteColumnsOp& op);
  void execute(const MoeRouteOp& op);
  void execute(const MoeMatmulOp& op);
  void execute(const MoeCombineOp& op);
  void execute(const GatherOutputsOp& op);
  void execute(const SoftcapOp& op);
  void execute(const ClampOp& op);
  void execute(const SampleOp& op);

  std::shared_ptr<const Program> program_;
  ScratchPlan plan_;
  std::vector<float> arena_;
  const StepInputs* inputs_ = nullptr;
  ResultBlock* results_ = nullptr;
};

// activation(x), for the FORGE_ activations.
float activate(uint32_t activation, float x);

}  // namespace forge::reference
