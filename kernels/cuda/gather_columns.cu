// Each group of columns of out is a sequence of pieces. The columns of piece p in group g are
// scale_p * x_p[first_p + g step_p ... + width_p - 1].
//
//   out [rows, n_groups, sum of the widths], x_p [rows, cols_p] F32
//   grid: (out_cols / 1024, rows), blocks for rows beyond *n_rows exit; block 256, four elements a
//   thread

#include "prelude.cuh"

struct ColumnPiece {
  const float* x;
  u32 cols, width, first, step;
  float scale;
};

struct ColumnPieces {
  ColumnPiece of[3];  // unused pieces have width 0
};

DEVICE float piece_element(const ColumnPieces& pieces, u32 row, u32 group, u32 at) {
#pragma unroll
  for (u32 p = 0; p < 3; ++p) {
    const ColumnPiece& piece = pieces.of[p];
    if (at < piece.width) {
      return piece.scale * piece.x[u64(row) * piece.cols + piece.first + group * piece.step + at];
    }
    at -= piece.width;
  }
  return 0;
}

KERNEL gather_columns(float* out, ColumnPieces pieces, const u32* n_rows, u32 out_cols,
                      u32 group_cols) {
  wait_for_previous_kernel();
  const u32 row = blockIdx.y;
  if (row >= *n_rows) return;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= out_cols) return;
    out[u64(row) * out_cols + i] = piece_element(pieces, row, i / group_cols, i % group_cols);
  }
}

INSTANCE(gather_columns)
