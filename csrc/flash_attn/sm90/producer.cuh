// The producer: one warp that keeps the copies of Q, K and V ahead of the consumers.
#pragma once

#include "sm90/block_state.cuh"

namespace flash_attn {

template <class T, int kHeadDim>
class Producer {
 public:
  using State = BlockState<T, kHeadDim>;
  using Tile = Sm90Tile<kHeadDim>;

  FA_DEVICE Producer(const Sm90ForwardArgs &args, const State &state)
      : args_(args), state_(state), lane_(thread_index() % 32) {}

  /// K is one tile ahead of V, as in the consumers: S of a tile overlaps with O of the previous
  /// one.
  FA_DEVICE void load(const ForwardWork<kHeadDim> &work) {
    load_keys(work, work.tiles.first);
    load_queries(work);
    for (int tile = work.tiles.first; tile < work.tiles.end; tile++) {
      if (tile + 1 < work.tiles.end) load_keys(work, tile + 1);
      load_values(work, tile);
    }
  }

 private:
  /// Waits until all lanes have seen the end of the phase. A lane that falls two phases behind
  /// would take the end of a later phase for its own.
  FA_DEVICE static void wait_together(Barrier &barrier, int parity) {
    barrier_wait(barrier, parity);
    warp_barrier();
  }

  FA_DEVICE void load_queries(const ForwardWork<kHeadDim> &work) {
    auto &ring = state_.barriers.q;
    wait_together(ring.empty[0], queries_.parity() ^ 1);
    const bool packed = args_.forward.query.cu_seqlens != nullptr;
    const int row = work.first_row + (packed ? work.sequence.q_begin : 0);
    if (lane_ == 0) barrier_arrive_expecting(ring.full[0], 2 * Tile::kQueryElements);
    if (lane_ < Tile::kPanels) {
      copy_box(reinterpret_cast<char *>(state_.q()) + lane_ * State::QueryPanels::kPanelBytes,
               args_.q, ring.full[0], lane_ * Tile::kPanel, row, work.place.head,
               packed ? 0 : work.sequence.index);
    }
    queries_.count++;
  }

  FA_DEVICE void load_keys(const ForwardWork<kHeadDim> &work, int tile) {
    auto &ring = state_.barriers.k;
    const int stage = keys_.stage();
    wait_together(ring.empty[stage], keys_.parity() ^ 1);
    copy_tile(work, tile, args_.k, state_.k(stage), ring.full[stage]);
    keys_.count++;
  }

  FA_DEVICE void load_values(const ForwardWork<kHeadDim> &work, int tile) {
    auto &ring = state_.barriers.v;
    const int stage = values_.stage();
    wait_together(ring.empty[stage], values_.parity() ^ 1);
    const int rows_left = work.sequence.n_keys - tile * Tile::kKeys;
    if (args_.clear_tail != 0 && rows_left < Tile::kKeys) {
      copy_tile(work, tile, args_.v, state_.v(stage), state_.barriers.tail);
      wait_together(state_.barriers.tail, tails_.parity());
      tails_.count++;
      clear_rows(state_.v(stage), rows_left);
      if (lane_ == 0) barrier_arrive(ring.full[stage]);
    } else {
      copy_tile(work, tile, args_.v, state_.v(stage), ring.full[stage]);
    }
    values_.count++;
  }

  /// Starts the copies of a tile of keys, divided among the lanes; pages are looked up one by one.
  FA_DEVICE void copy_tile(const ForwardWork<kHeadDim> &work, int tile, const TensorMap &map, T *to,
                           Barrier &full) {
    const KeyRows rows(args_.forward.kv, work.sequence);
    const int head = work.place.head / args_.forward.group;
    const int first = tile * Tile::kKeys;
    const int rows_left = work.sequence.n_keys - first;
    const int wanted = rows_left < Tile::kKeys ? rows_left : Tile::kKeys;
    const int pieces = (wanted + args_.keys_each - 1) / args_.keys_each;
    if (lane_ == 0) barrier_arrive_expecting(full, pieces * args_.keys_each * kHeadDim * 2);
#pragma unroll 1
    for (int i = lane_; i < pieces * Tile::kPanels; i += 32) {
      const int piece = i / Tile::kPanels, panel = i % Tile::kPanels;
      const int key = first + piece * args_.keys_each;
      char *const at = reinterpret_cast<char *>(to) + panel * State::KeyPanels::kPanelBytes +
                       piece * args_.keys_each * State::KeyPanels::kRowBytes;
      copy_box(at, map, full, panel * Tile::kPanel, rows.row(key), head, rows.page(key));
    }
  }

  /// Clears the rows after a sequence's last key. Their weight is zero, but zero times infinity is
  /// NaN, and in packed sequences and pages these rows may hold any value.
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
  StageCounter<1> queries_;
  StageCounter<Tile::kStages> keys_;
  StageCounter<Tile::kStages> values_;
  StageCounter<1> tails_;
};

}  // namespace flash_attn
