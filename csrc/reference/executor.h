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

#define FORGE_DECLARE(AnyOp) void execute(const AnyOp& op);
  FORGE_OPERATIONS(FORGE_DECLARE)
#undef FORGE_DECLARE

  std::shared_ptr<const Program> program_;
  ScratchPlan plan_;
  std::vector<float> arena_;
  const StepInputs* inputs_ = nullptr;
  ResultBlock* results_ = nullptr;
};

// activation(x), for the FORGE_ activations.
float activate(uint32_t activation, float x);

}  // namespace forge::reference
