// Gates, and the operations that have recurrent state: this device has no kernels of them.

#include "../common/error.h"
#include "plan_builder.h"

namespace forge::cuda {

namespace {

[[noreturn]] void refuse() {
  fail(FORGE_UNSUPPORTED, "the CUDA device cannot run models with recurrent state yet");
}

}  // namespace

void PlanBuilder::emit(const SigmoidGateOp&) { refuse(); }

void PlanBuilder::emit(const GatedRmsNormOp&) { refuse(); }

void PlanBuilder::emit(const CausalConv1dOp&) { refuse(); }

void PlanBuilder::emit(const GatedDeltaRuleOp&) { refuse(); }

}  // namespace forge::cuda
