#pragma once

// The plain float32 implementation of every operation: one loop nest each, sums in double, no
// optimisation. The kernels of every other backend are tested against it.

#include <memory>
#include <vector>

#include "../common/host_executor.h"

namespace forge::reference {

class Executor : public HostExecutor {
 public:
  Executor(std::shared_ptr<const Program> program, const RankLinks& links);

  void run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) override;

 private:
#define FORGE_DECLARE(AnyOp) void execute(const AnyOp& op);
  FORGE_OPERATIONS(FORGE_DECLARE)
#undef FORGE_DECLARE

  std::vector<float> arena_;
};

// Returns activation(x), for the FORGE_ activations.
float activate(uint32_t activation, float x);

}  // namespace forge::reference
