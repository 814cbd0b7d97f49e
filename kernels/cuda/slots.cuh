#pragma once

// Recurrent state, as the step's inputs say whose it is.

#include "prelude.cuh"

// Rows first_row .. first_row + n_rows of a step are the tokens of one sequence; none for n_rows =
// 0. Its slot is what the tokens before left, or, from zero, is taken for zeros.
struct SlotRun {
  u32 first_row;
  u32 n_rows;
  u32 slot;
  u32 from_zero;
};
