// The order in which tiles of query rows are computed.
#pragma once

#include "args.h"
#include "device/device.cuh"

namespace flash_attn {

/// A tile of query rows of one head of one sequence.
struct ScheduledTile {
  int row_tile;
  int head;
  int batch;
};

FA_DEVICE int scheduled_tiles(const ForwardArgs &args) {
  return args.row_tiles * args.n_heads * args.batch;
}

/// The tile at a position of the schedule. Heads are grouped into sections whose keys and values
/// fit in L2 together. Within a section, the last rows come first: with a causal mask they see the
/// most keys, and the longest tiles must not start last.
FA_DEVICE ScheduledTile scheduled_tile(const ForwardArgs &args, int place) {
  const int n_heads = args.n_heads * args.batch;
  const int section_tiles = args.section_heads * args.row_tiles;
  const int section = place / section_tiles;
  const int first_head = section * args.section_heads;
  const int rest = n_heads - first_head;
  const int heads = rest < args.section_heads ? rest : args.section_heads;
  const int within = place - section * section_tiles;
  const int head = first_head + within % heads;
  return {args.row_tiles - 1 - within / heads, head % args.n_heads, head / args.n_heads};
}

/// The schedule positions of a block: one per round, alternately from the left and from the right,
/// so that no block always gets the longest tile of a round.
class BlockTurns {
 public:
  FA_DEVICE int place() const {
    const int within = round_ % 2 == 0 ? block_x() : grid_x() - 1 - block_x();
    return round_ * grid_x() + within;
  }
  FA_DEVICE void next() { round_++; }

 private:
  int round_ = 0;
};

}  // namespace flash_attn
