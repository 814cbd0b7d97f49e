// The order in which tiles of query rows are computed. Blocks take tiles in this order whenever
// they are free: the hardware starts the blocks of SM80, and those of SM90 share a counter.
#pragma once

#include "core/sequence.cuh"

namespace flash_attn {

// A tile of query rows of one head of one sequence.
struct ScheduledTile {
  int row_tile;
  int head;
  int batch;
};

// The tile at a position of the schedule. Heads are grouped into sections whose keys and values
// fit in L2 together. Within a section, the last rows come first: with a causal mask they see the
// most keys, and the longest tiles must not start last.
FA_DEVICE ScheduledTile scheduled_tile(const TileSchedule &schedule, int place) {
  const int section = divide(place, schedule.section_tiles);
  const int within = place - section * schedule.section_tiles.value;
  const Divisor &heads =
      section == schedule.last_section ? schedule.last_heads : schedule.section_heads;
  const int row = divide(within, heads);
  const int head = section * schedule.section_heads.value + within - row * heads.value;
  const int batch = divide(head, schedule.n_heads);
  return {schedule.row_tiles - 1 - row, head - batch * schedule.n_heads.value, batch};
}

}  // namespace flash_attn
