#pragma once

// The rows of its operands that a product computes: those of a list, or the first ones.

#include "prelude.cuh"

DEVICE u32 row_of_set(const RowSet& rows, u32 i) { return rows.list ? rows.list[i] : i; }
