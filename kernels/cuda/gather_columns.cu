// Each group of columns of out is a sequence of pieces. The columns of piece p in group g are
// scale_p * x_p[first_p + g step_p ... + width_p - 1].
//
//   out [rows, n_groups, sum of the widths], x_p [rows, cols_p] F32
//   grid: (out_cols / 1024, rows), blocks for rows beyond *n_rows exit; block 256, four elements a
//   thread

#include "prelude.cuh"
#include "row_arguments.h"

DEVICE float piece_element(const float* x, const ColumnPiece& piece, u32 row, u32 group, u32 at) {
  return piece.scale * x[u64(row) * piece.cols + piece.first + group * piece.step + at];
}

KERNEL gather_columns(GatherColumns a) {
  wait_for_previous_kernel();
  const u32 row = blockIdx.y;
  if (row >= *a.n_rows) return;
  const u32 end0 = a.pieces[0].width, end1 = end0 + a.pieces[1].width;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= a.out_cols) return;
    const u32 group = i / a.group_cols, at = i % a.group_cols;
    a.out[u64(row) * a.out_cols + i] =
        at < end0   ? piece_element(a.x0, a.pieces[0], row, group, at)
        : at < end1 ? piece_element(a.x1, a.pieces[1], row, group, at - end0)
                    : piece_element(a.x2, a.pieces[2], row, group, at - end1);
  }
}

INSTANCE(gather_columns)
