// out = residual + sigmoid(gate) * x; each column of gate applies to cols / gates neighbouring
// columns of x.
//
//   x, out, residual [rows, cols], gate [rows, gates] F32
//   grid: (cols / 1024, rows); block 256, four elements a thread

#include "prelude.cuh"
#include "row_arguments.h"

KERNEL sigmoid_gate(SigmoidGate a) {
  wait_for_previous_kernel();
  const u32 row = blockIdx.y;
  if (row >= *a.n_rows) return;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= a.cols) return;
    const u64 at = u64(row) * a.cols + i;
    const float by = a.gate[u64(row) * a.gates + i / (a.cols / a.gates)];
    const float gated = a.x[at] / (1.0f + expf(-by));
    a.out[at] = a.has_residual ? a.residual[at] + gated : gated;
  }
}

INSTANCE(sigmoid_gate)
