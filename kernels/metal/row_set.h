#pragma once

#include "prelude.h"

// The rows of a step that a kernel computes: those of a list, or the first ones.
struct RowSet {
  device const uint* list;
  uint has_list;
  uint count;
};
inline RowSet row_set(device const uint* n_rows, device const uint* list, uint has_list) {
  return {list, has_list, *n_rows};
}
// The `i`-th row of the set; beyond the last it repeats the last, whose results are not stored.
inline uint row_of(RowSet set, uint i) {
  const uint place = min(i, set.count - 1);
  return set.has_list != 0 ? set.list[place] : place;
}
