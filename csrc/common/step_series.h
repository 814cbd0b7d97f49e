#pragma once

#include "backend.h"
#include "step_inputs.h"

namespace forge {

// Runs a step inputs.n_steps times, each time on the tokens that the time before chose, so that a
// caller is asked once for all of them; see forge_step_header in forge.h. The results of steps that
// do not run are marked so.
void run_series(Executable& executable, const Program& program, const StepInputs& inputs,
                const ResultBlock& results, const StopFlag& stop);

}  // namespace forge
