// The choice of tokens.

#include "plan_builder.h"

namespace forge::cuda {

void PlanBuilder::emit(const SampleOp& op) {
  fail(FORGE_UNSUPPORTED, "sampling");
  (void)op;
}

}  // namespace forge::cuda
