#pragma once

// How attention, experts and recurrent operations divide their work, in structs that kernels read
// from device memory.

#include <cstdint>

namespace forge {

// Consecutive rows of one sequence at consecutive positions, computed together by attention.
struct QueryTile {
  uint32_t first_row;
  uint32_t n_queries;
  uint32_t sequence;
  uint32_t first_position;
  uint32_t end;  // positions of the sequence that are there to be seen
};
static_assert(sizeof(QueryTile) == 20);

// A part of the positions that a tile of decode attention sees.
struct AttentionWork {
  uint32_t tile;
  uint32_t split;
  uint32_t first_work;  // the tile's entry of split 0
  uint32_t n_splits;
};
static_assert(sizeof(AttentionWork) == 16);

// Pairs of token and expert that are computed together.
struct MoeTile {
  uint32_t expert;
  uint32_t first;
  uint32_t count;
};
static_assert(sizeof(MoeTile) == 12);

// The tokens of one sequence in a step that has recurrent state.
struct SlotRun {
  uint32_t first_row;
  uint32_t n_rows;  // 0: there is no run
  uint32_t slot;
  uint32_t from_zero;  // whether it begins with a state of zeros
};
static_assert(sizeof(SlotRun) == 16);

}  // namespace forge
