// out = residual + sigmoid(gate) * x; each column of gate applies to cols / gates neighbouring
// columns of x.
//
//   x, out, residual [rows, cols], gate [rows, gates] F32
//   grid: that of for_each_number

#include "prelude.cuh"
#include "row_arguments.h"

KERNEL sigmoid_gate(SigmoidGate a) {
  for_each_number(a.n_rows, a.cols, [&](u64 row, u32 i) {
    const u64 at = row * a.cols + i;
    const float by = a.gate[row * a.gates + i / (a.cols / a.gates)];
    const float gated = a.x[at] / (1.0f + expf(-by));
    a.out[at] = a.has_residual ? a.residual[at] + gated : gated;
  });
}

INSTANCE(sigmoid_gate)
