// Each group of columns of out is a sequence of pieces. Buffers and geometry: arguments.h.

#include "prelude.h"

inline float piece_element(device const float* x, constant ColumnPiece& piece, uint row, uint group,
                           uint at) {
  return piece.scale * x[ulong(row) * piece.cols + piece.first + group * piece.step + at];
}

kernel void gather_columns(device float* out [[buffer(0)]], device const float* x0 [[buffer(1)]],
                           device const float* x1 [[buffer(2)]],
                           device const float* x2 [[buffer(3)]],
                           device const uint* n_rows [[buffer(4)]],
                           constant GatherColumnsArgs& args [[buffer(5)]],
                           uint2 at [[threadgroup_position_in_grid]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
  const uint row = at.y, out_cols = args.out_cols;
  if (row >= *n_rows) return;
  const uint behind0 = args.pieces[0].width, behind1 = behind0 + args.pieces[1].width;
  for (uint i = at.x * kRowElements + thread_index; i < min(out_cols, (at.x + 1) * kRowElements);
       i += 256) {
    const uint group = i / args.group_cols, column = i % args.group_cols;
    out[ulong(row) * out_cols + i] =
        column < behind0   ? piece_element(x0, args.pieces[0], row, group, column)
        : column < behind1 ? piece_element(x1, args.pieces[1], row, group, column - behind0)
                           : piece_element(x2, args.pieces[2], row, group, column - behind1);
  }
}
