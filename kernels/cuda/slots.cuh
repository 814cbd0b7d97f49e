#pragma once

// Recurrent state and the sequences that it belongs to.

#include "prelude.cuh"

// Rows first_row .. first_row + n_rows of a step are the tokens of one sequence; none if n_rows is
// 0. The slot holds the state after the previous tokens; with from_zero it is read as zeros.
struct SlotRun {
  u32 first_row;
  u32 n_rows;
  u32 slot;
  u32 from_zero;
};
