#include "run_work.h"

namespace forge {

RunWork deal_out(const StepInputs& inputs, const StepLimits& limits, const TilingPolicy& policy) {
  RunWork work{query_tiles(inputs, policy), step_rows(inputs), {}};
  const auto& [tokens, outputs] = work.rows;
  StepShape& shape = work.shape;
  shape = shape_of(inputs, work.tiles, limits);
  shape.decode_tokens = rounded_rows(tokens.decode.size(), limits.max_tokens);
  shape.prefill_tokens = rounded_rows(tokens.prefill.size(), limits.max_tokens);
  shape.decode_outputs = rounded_rows(outputs.decode.size(), limits.max_outputs);
  shape.prefill_outputs = rounded_rows(outputs.prefill.size(), limits.max_outputs);
  return work;
}

}  // namespace forge
