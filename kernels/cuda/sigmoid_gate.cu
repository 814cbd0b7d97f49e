// out = residual + sigmoid(gate) * x; each column of gate applies to cols / gates neighbouring
// columns of x.
//
//   x, out, residual [rows, cols], gate [rows, gates] F32 (residual may be null)
//   grid: (cols / 1024, rows); block 256, four elements a thread

#include "prelude.cuh"

KERNEL sigmoid_gate(float* out, const float* x, const float* gate, const float* residual,
                    const u32* n_rows, u32 cols, u32 gates) {
  wait_for_previous_kernel();
  const u32 row = blockIdx.y;
  if (row >= *n_rows) return;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= cols) return;
    const u64 at = u64(row) * cols + i;
    const float by = gate[u64(row) * gates + i / (cols / gates)];
    const float gated = x[at] / (1.0f + expf(-by));
    out[at] = residual ? residual[at] + gated : gated;
  }
}

INSTANCE(sigmoid_gate)
