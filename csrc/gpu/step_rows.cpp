#include "step_rows.h"

namespace forge {

StepRows step_rows(const StepInputs& inputs) {
  const std::vector<QueryTile> runs = sequence_runs(inputs);
  std::vector<uint32_t> run_of_token(inputs.n_tokens), n_outputs(runs.size());
  StepRows rows;
  for (uint32_t run = 0; run < runs.size(); ++run) {
    const bool is_short = runs[run].n_queries <= kDecodeQueries;
    for (uint32_t i = 0; i < runs[run].n_queries; ++i) {
      const uint32_t token = runs[run].first_row + i;
      run_of_token[token] = run;
      (is_short ? rows.tokens.decode : rows.tokens.prefill).push_back(token);
    }
  }
  const auto run_of_output = [&](uint32_t output) {
    return run_of_token[static_cast<uint32_t>(inputs.output_rows[output])];
  };
  for (uint32_t output = 0; output < inputs.n_outputs; ++output) ++n_outputs[run_of_output(output)];
  for (uint32_t output = 0; output < inputs.n_outputs; ++output) {
    const bool is_few = n_outputs[run_of_output(output)] <= kDecodeQueries;
    (is_few ? rows.outputs.decode : rows.outputs.prefill).push_back(output);
  }
  return rows;
}

}  // namespace forge
