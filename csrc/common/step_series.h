#pragma once

#include "backend.h"
#include "step_inputs.h"

namespace forge {

// Runs a step inputs.n_steps times with one call, each time on the tokens chosen by the previous
// step; see forge_step_header in forge.h. The results of steps that do not run have FORGE_NOT_RUN.
void run_series(Executable& executable, const Program& program, const StepInputs& inputs,
                const ResultBlock& results, const StopFlag& stop);

}  // namespace forge
