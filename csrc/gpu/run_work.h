#pragma once

#include "step_rows.h"
#include "step_shape.h"

namespace forge {

// The tokens of a run, dealt out to kernels, and the shape of the plan that runs them.
struct RunWork {
  QueryTiles tiles;
  StepRows rows;
  StepShape shape;
};

RunWork deal_out(const StepInputs& inputs, const StepLimits& limits,
                 const TilingPolicy& policy = {});

}  // namespace forge
