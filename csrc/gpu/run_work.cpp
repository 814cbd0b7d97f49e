#include "run_work.h"

namespace forge {

RunWork deal_out(const StepInputs& inputs, const StepLimits& limits, const TilingPolicy& policy) {
  RunWork work{query_tiles(inputs, policy), step_rows(inputs), {}};
  work.shape = shape_of(inputs, work.tiles, limits);
  note_rows(work.rows, limits, work.shape);
  return work;
}

}  // namespace forge
