#pragma once

// The rows of its operands that a product computes: those of a list, or the first ones.

#include "prelude.cuh"

struct RowSet {
  const u32* count;
  const u32* list;  // [count], or null: 0, 1, 2, ...
};

DEVICE u32 row_of_set(const RowSet& rows, u32 i) { return rows.list ? rows.list[i] : i; }
