// Balance of the forward kernels' schedule on a device, without running a kernel. Reads lines
// `head_dim length causal capability multiprocessors l2_bytes`; 16384 tokens in all and 2048
// columns of heads, as in bench/flash_attn.ts. Prints one JSON object a line; `distinct` counts
// tiles of the problem, each once.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <numeric>
#include <queue>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "core/key_window.cuh"
#include "core/schedule.cuh"
#include "host/forward_plan.h"
#include "host/kernels.h"
#include "sm80/forward_tile.h"
#include "sm90/forward_tile.h"

namespace {

using namespace flash_attn;

struct Shape {
  int head_dim, length, causal, capability;
  Device device;
};

struct Times {
  // Of all tiles in the order of the schedule, in tiles of keys. A tile also takes about the time
  // of one tile of keys to begin and to write its results.
  std::vector<int> tiles;
  size_t distinct;
};

template <class Tile>
Times tile_times(const Shape &shape) {
  flash_attn_params p = {};
  p.batch = 16384 / shape.length;
  p.n_heads = p.n_kv_heads = 2048 / shape.head_dim;
  p.head_dim = shape.head_dim;
  p.seqlen_q = p.seqlen_k = shape.length;
  const TileSchedule schedule = plan_schedule(p, Tile::kRows, shape.device);
  ScoreArgs score = {};
  score.window_left = unlimited_window;
  score.window_right = shape.causal != 0 ? 0 : unlimited_window;
  QueryArgs query = {};
  KeyValueArgs kv = {};
  query.seqlen = kv.seqlen = shape.length;
  std::vector<int> times;
  std::set<std::tuple<int, int, int>> seen;
  const int row_tiles = (shape.length + Tile::kRows - 1) / Tile::kRows;
  for (int place = 0; place < schedule.tiles; place++) {
    const ScheduledTile at = scheduled_tile(schedule, place);
    const bool exists = at.row_tile >= 0 && at.row_tile < row_tiles && at.batch < p.batch;
    if (exists) seen.insert({at.row_tile, at.head, at.batch});
    const Sequence sequence(query, kv, at.batch);
    const int first = at.row_tile * Tile::kRows;
    const int last = std::min(first + Tile::kRows, shape.length) - 1;
    const KeyTiles tiles = KeyWindow(score, sequence).tiles<Tile::kKeys>(first, last);
    times.push_back(tiles.end - tiles.first + 1);
  }
  return {times, seen.size()};
}

// Mean time of the multiprocessors divided by the longest, if each takes the next tile when it is
// free. Two blocks on a multiprocessor of SM80 share its units, and count as one.
double balance(const std::vector<int> &times, int multiprocessors) {
  std::priority_queue<int, std::vector<int>, std::greater<>> ends;
  for (int i = 0; i < multiprocessors; i++) ends.push(0);
  int last = 0;
  for (const int time : times) {
    const int end = ends.top() + time;
    ends.pop();
    ends.push(end);
    last = std::max(last, end);
  }
  const double total = std::accumulate(times.begin(), times.end(), 0.0);
  return total / multiprocessors / last;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    Shape shape = {};
    std::stringstream(line) >> shape.head_dim >> shape.length >> shape.causal >> shape.capability >>
        shape.device.multiprocessors >> shape.device.l2_bytes;
    with_head_dim(shape.head_dim, [&]<int kHeadDim>() {
      const bool sm90 = shape.capability == 90;
      const Times times = sm90 ? tile_times<Sm90Tile<kHeadDim, false>>(shape)
                               : tile_times<ForwardTile<kHeadDim>>(shape);
      std::printf("{\"tiles\":%zu,\"distinct\":%zu,\"balance\":%.4f}\n", times.tiles.size(),
                  times.distinct, balance(times.tiles, shape.device.multiprocessors));
    });
  }
  return 0;
}
