// The producer: one warp that claims tiles of query rows, decodes them for the consumers, and keeps
// the copies of Q, K and V ahead of them.
#pragma once

#include "sm90/block_state.cuh"

namespace flash_attn {

template <class T, class Tile>
class Producer {
 public:
  using State = BlockState<T, Tile>;

  FA_DEVICE Producer(const Sm90ForwardArgs &args, const State &state)
      : args_(args), state_(state), lane_(thread_index() % 32) {}

  FA_DEVICE void run() {
    const TileSchedule &schedule = args_.forward.schedule;
    TileWork work;
    for (int place = block_x(); place < schedule.tiles; place = claimed()) {
      if (decode(place, work)) {
        publish(work);
        load(work);
      } else {
        claim();
      }
    }
    work.head = -1;
    publish(work);
  }

 private:
  // Begins to fetch the position of the block's next tile in the schedule. Blocks begin with the
  // first tiles, one each.
  FA_DEVICE void claim() {
    next_ = args_.claimed == nullptr ? args_.forward.schedule.tiles : grid_x();
    if (args_.claimed != nullptr && lane_ == 0) next_ += fetch_add(args_.claimed, 1);
  }
  FA_DEVICE int claimed() const { return from_first_lane(next_); }

  // Returns false for a tile beyond a short sequence: the schedule has tiles for the longest one.
  FA_DEVICE bool decode(int place, TileWork &work) const {
    const ForwardArgs &args = args_.forward;
    const ScheduledTile at = scheduled_tile(args.schedule, place);
    work.sequence = Sequence(args.query, args.kv, at.batch);
    work.head = at.head;
    work.first_row = at.row_tile * Tile::kRows;
    int last_row = work.first_row + Tile::kRows - 1;
    if (last_row >= work.sequence.n_queries) last_row = work.sequence.n_queries - 1;
    const KeyWindow window(args.score, work.sequence);
    work.tiles = window.template tiles<Tile::kKeys>(work.first_row, last_row);
    work.whole = window.template whole_tiles<Tile::kKeys>(work.first_row, last_row);
    return work.first_row < work.sequence.n_queries;
  }

  FA_DEVICE void publish(const TileWork &work) {
    auto &ring = state_.control.works;
    const int stage = works_.stage();
    wait_together(ring.empty[stage], works_.parity() ^ 1);
    if (lane_ == 0) {
      state_.control.work[stage] = work;
      barrier_arrive(ring.full[stage]);
    }
    works_.count++;
  }

  // K is one tile ahead of V, as in the consumers: S of a tile overlaps with O of the previous
  // one. The next tile of rows is claimed when most of this one has been computed, so that blocks
  // end together, and arrives while the last values are waited for.
  FA_DEVICE void load(const TileWork &work) {
    const KeyTiles tiles = work.tiles;
    if (tiles.first >= tiles.end) return claim();
    load_keys(work, tiles.first);
    load_queries(work);
    for (int tile = tiles.first; tile < tiles.end; tile++) {
      if (tile + 1 < tiles.end) {
        load_keys(work, tile + 1);
      } else {
        claim();
      }
      load_values(work, tile);
    }
  }

  // Waits until every lane has seen the phase end. Parity alone does not tell a lane that is two
  // phases late which of them has ended.
  FA_DEVICE static void wait_together(Barrier &barrier, int parity) {
    barrier_wait(barrier, parity);
    warp_barrier();
  }

  FA_DEVICE void load_queries(const TileWork &work) {
    auto &ring = state_.control.q;
    wait_together(ring.empty[0], queries_.parity() ^ 1);
    const bool packed = args_.forward.query.cu_seqlens != nullptr;
    const int row = work.first_row + (packed ? work.sequence.q_begin : 0);
    if (lane_ == 0) barrier_arrive_expecting(ring.full[0], 2 * Tile::kQueryElements);
    if (lane_ < Tile::kPanels) {
      copy_box(reinterpret_cast<char *>(state_.q()) + lane_ * State::QueryPanels::kPanelBytes,
               args_.q, ring.full[0], read_once(), lane_ * Tile::kPanel, row, work.head,
               packed ? 0 : work.sequence.index);
    }
    queries_.count++;
  }

  FA_DEVICE void load_keys(const TileWork &work, int tile) {
    auto &ring = state_.control.k;
    const int stage = keys_.stage();
    wait_together(ring.empty[stage], keys_.parity() ^ 1);
    copy_tile(work, tile, args_.k, state_.k(stage), ring.full[stage]);
    keys_.count++;
  }

  FA_DEVICE void load_values(const TileWork &work, int tile) {
    auto &ring = state_.control.v;
    const int stage = values_.stage();
    wait_together(ring.empty[stage], values_.parity() ^ 1);
    const int rows_left = work.sequence.n_keys - tile * Tile::kKeys;
    if (args_.clear_tail != 0 && rows_left < Tile::kKeys) {
      copy_tile(work, tile, args_.v, state_.v(stage), state_.control.tail);
      wait_together(state_.control.tail, tails_.parity());
      tails_.count++;
      clear_rows(state_.v(stage), rows_left);
      if (lane_ == 0) barrier_arrive(ring.full[stage]);
    } else {
      copy_tile(work, tile, args_.v, state_.v(stage), ring.full[stage]);
    }
    values_.count++;
  }

  // Starts the copies of a tile of keys, divided among the lanes; pages are looked up one by one.
  FA_DEVICE void copy_tile(const TileWork &work, int tile, const TensorMap &map, T *to,
                           Barrier &full) {
    const KeyRows rows(args_.forward.kv, work.sequence);
    const int head = divide(work.head, args_.forward.schedule.group);
    const int first = tile * Tile::kKeys;
    const int rows_left = work.sequence.n_keys - first;
    const int wanted = rows_left < Tile::kKeys ? rows_left : Tile::kKeys;
    const int pieces = (wanted + args_.keys_each - 1) / args_.keys_each;
    if (lane_ == 0) barrier_arrive_expecting(full, pieces * args_.keys_each * Tile::kColumns * 2);
#pragma unroll 1
    for (int i = lane_; i < pieces * Tile::kPanels; i += 32) {
      const int piece = i / Tile::kPanels, panel = i % Tile::kPanels;
      const int key = first + piece * args_.keys_each;
      char *const at = reinterpret_cast<char *>(to) + panel * State::KeyPanels::kPanelBytes +
                       piece * args_.keys_each * State::KeyPanels::kRowBytes;
      // Sections are as large as L2 holds.
      copy_box(at, map, full, kept_in_cache(), panel * Tile::kPanel, rows.row(key), head,
               rows.page(key));
    }
  }

  // Clears the rows after a sequence's last key. Their weight is zero, but zero times infinity is
  // NaN, and in packed sequences and pages these rows may hold any value.
  FA_DEVICE void clear_rows(T *tile, int first_row) {
    constexpr int kRowBytes = State::KeyPanels::kRowBytes;
    constexpr int kChunks = kRowBytes / 16;
    const int chunks = (Tile::kKeys - first_row) * kChunks;
#pragma unroll 1
    for (int panel = 0; panel < Tile::kPanels; panel++) {
      char *const rows = reinterpret_cast<char *>(tile) + panel * State::KeyPanels::kPanelBytes +
                         first_row * kRowBytes;
#pragma unroll 1
      for (int i = lane_; i < chunks; i += 32) store_16_bytes(rows + 16 * i, Words4{});
    }
    async_proxy_fence();
    warp_barrier();
  }

  const Sm90ForwardArgs &args_;
  const State &state_;
  const int lane_;
  int next_ = 0;  // in lane 0: the position of the block's next tile
  StageCounter<State::kWorkStages> works_;
  StageCounter<1> queries_;
  StageCounter<Tile::kStages> keys_;
  StageCounter<Tile::kStages> values_;
  StageCounter<1> tails_;
};

}  // namespace flash_attn
