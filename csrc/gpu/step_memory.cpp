#include "step_memory.h"

#include "input_layout.h"

namespace forge {

uint64_t result_bytes(const Program& program, uint32_t n_outputs) {
  // Of each output the most probable ids and their log-probabilities, after the header.
  const uint64_t stride = sizeof(forge_result) + 8ull * program.max_top;
  return program.samples ? n_outputs * stride : 0;
}

StepBytes step_bytes(const Program& program, const ScratchPlan& values,
                     const WorkspaceBytes& workspace, const std::vector<StepShape>& shapes) {
  const uint32_t max_outputs = program.limits.max_outputs;
  const uint64_t counts = program.samples ? max_outputs * program.logits_cols : 0;
  return {.values = values.elements * sizeof(float),
          .workspace = workspace,
          .occurrences = counts * sizeof(uint32_t),
          .results = result_bytes(program, max_outputs),
          .inputs = input_bytes(program, shapes)};
}

}  // namespace forge
