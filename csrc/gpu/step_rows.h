#pragma once

// Which rows of a run are computed by which kind of product.
//
// Kernels that multiply few rows at memory speed and those that multiply many at the speed of
// arithmetic add in different orders. Which of them computes a row is decided by the run of its own
// sequence alone, so that what else is in the step does not change a digit: rows of at most
// kDecodeQueries consecutive tokens are decode rows, longer runs are prefill rows. Of the outputs,
// those of a sequence's run that has no more than so many of them are decode rows.

#include <vector>

#include "step_shape.h"

namespace forge {

struct RowClasses {
  std::vector<uint32_t> decode;  // numbers of rows, ascending
  std::vector<uint32_t> prefill;
};

struct StepRows {
  RowClasses tokens;
  RowClasses outputs;
};

StepRows step_rows(const StepInputs& inputs);

}  // namespace forge
