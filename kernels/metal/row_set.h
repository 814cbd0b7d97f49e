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

// Returns x[k .. k + 3]. Unless rows are `whole` fours or more, numbers from `cols` on are zeros.
template <bool whole>
inline float4 load_four(device const float* x, uint k, uint cols) {
  if (whole) return *(device const float4*)(x + k);
  return float4(k < cols ? x[k] : 0.0f, k + 1 < cols ? x[k + 1] : 0.0f,
                k + 2 < cols ? x[k + 2] : 0.0f, k + 3 < cols ? x[k + 3] : 0.0f);
}
// The same of a row of any length; zeros beyond its end.
inline float4 load_four(device const float* x, uint k, uint cols) {
  if (cols % 4 != 0) return load_four<false>(x, k, cols);
  return k < cols ? load_four<true>(x, k, cols) : float4(0.0f);
}
