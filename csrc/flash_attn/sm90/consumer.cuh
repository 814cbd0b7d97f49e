// A consumer warpgroup: 64 rows of the block's tile.
//
// Two kinds of overlap (FlashAttention-3, sections 3.1 and 3.2):
//
//   within a warpgroup    S of a tile is issued before O of the previous tile, so that the tensor
//                         cores compute O while the softmax of S begins;
//   between warpgroups    they issue products in turns: while one computes exponentials, the tensor
//                         cores run the products of the others.
//
//   consumer 0   S1 O0 | softmax 1      S2 O1 | softmax 2
//   consumer 1         | S1 O0  softmax 1     | S2 O1  softmax 2
#pragma once

#include "core/forward_result.cuh"
#include "sm90/block_state.cuh"

namespace flash_attn {

template <class T, int kHeadDim>
class Consumer {
 public:
  using State = BlockState<T, kHeadDim>;
  using Tile = Sm90Tile<kHeadDim>;
  static constexpr int kKeyTiles = Tile::kKeys / 8;
  static constexpr int kOutTiles = kHeadDim / 8;
  using Scores = Accumulators<1, kKeyTiles>;
  using Out = Accumulators<1, kOutTiles>;

  FA_DEVICE Consumer(const Sm90ForwardArgs &args, const State &state, int number)
      : args_(args), state_(state), number_(number) {
    // Consumer 0 has the first turn.
    if (number_ == Tile::kConsumers - 1) pass_turn();
  }

  /// Computes the tile at a position of the schedule.
  FA_DEVICE void compute(int place) {
    OnlineSoftmax<1> softmax(args_.forward.score);
    Out out;
    clear<1, kOutTiles>(out);
    if (!accumulate(place, softmax, out)) return;
    const ForwardWork<kHeadDim> work(args_.forward, forget(place));
    const int first_row = warp_row(work);
    write_forward_result<T, 1, kOutTiles>(args_.forward, work.sequence, work.place.head, out,
                                          softmax, [&](int row) { return first_row + row; });
  }

 private:
  FA_DEVICE int warp_row(const ForwardWork<kHeadDim> &work) const {
    return work.first_row + 64 * number_ + thread_index() % 128 / 32 * 16;
  }

  /// Iterates over the tiles of keys; false if the tile of rows does not exist.
  FA_DEVICE bool accumulate(int place, OnlineSoftmax<1> &softmax, Out &out) {
    const ForwardWork<kHeadDim> work(args_.forward, place);
    if (!work.exists()) return false;
    if (!work.sees_keys()) return true;
    const int first_row = warp_row(work);
    const auto query_of = [&](int row) { return first_row + row; };
    Scores scores;
    Weights<1, kKeyTiles> weights;
    PerRow<1> shrink;

    barrier_wait(state_.barriers.q.full[0], queries_.parity());
    issue_scores(scores);
    product_wait<0>();
    release_keys();
    add_to_softmax(work, work.tiles.first, query_of, softmax, scores, shrink);
    pack_weights<T, 1, kKeyTiles>(weights, scores);

    for (int tile = work.tiles.first + 1; tile < work.tiles.end; tile++) {
      wait_for_turn();
      issue_scores(scores);
      issue_out(out, weights);
      pass_turn();
      product_wait<1>();
      release_keys();
      add_to_softmax(work, tile, query_of, softmax, scores, shrink);
      product_wait<0>();
      release_values();
      scale_rows<1, kOutTiles>(out, shrink);
      pack_weights<T, 1, kKeyTiles>(weights, scores);
    }

    release(state_.barriers.q.empty[0]);
    queries_.count++;
    issue_out(out, weights);
    product_wait<0>();
    release_values();
    return true;
  }

  /// scores = Q K^T of the next tile of keys, as one group of products.
  FA_DEVICE void issue_scores(Scores &scores) {
    const int stage = keys_.stage();
    barrier_wait(state_.barriers.k.full[stage], keys_.parity());
    product_fence();
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; k++) {
      WarpgroupProduct<T, Tile::kKeys>::from_shared(
          scores, State::QueryPanels::depth_contiguous(state_.q(), 64 * number_, k),
          State::KeyPanels::depth_contiguous(state_.k(stage), 0, k), k > 0);
    }
    product_commit();
  }

  /// out += weights V of the next tile of values, as one group of products.
  FA_DEVICE void issue_out(Out &out, const Weights<1, kKeyTiles> &weights) {
    const int stage = values_.stage();
    barrier_wait(state_.barriers.v.full[stage], values_.parity());
    product_fence();
#pragma unroll
    for (int k = 0; k < Tile::kKeys / 16; k++) {
      WarpgroupProduct<T, kHeadDim>::from_registers(
          out, weights[0][k], State::KeyPanels::columns_contiguous(state_.v(stage), k));
    }
    product_commit();
  }

  template <class QueryOf>
  FA_DEVICE void add_to_softmax(const ForwardWork<kHeadDim> &work, int tile, QueryOf query_of,
                                OnlineSoftmax<1> &softmax, Scores &scores, PerRow<1> &shrink) {
    const ScoreArgs &score = args_.forward.score;
    if (score.softcap_scale > 0) cap_scores<1, kKeyTiles>(scores, score);
    const int first_key = tile * Tile::kKeys;
    if (!work.window.sees_all(work.first_row, work.last_row, first_key, first_key + Tile::kKeys)) {
      mask_scores<1, kKeyTiles>(scores, work.window, query_of, first_key);
    }
    softmax.template add<kKeyTiles>(scores, shrink);
  }

  /// Marks a stage as read by this warp.
  FA_DEVICE static void release(Barrier &empty) {
    if (thread_index() % 32 == 0) barrier_arrive(empty);
  }
  FA_DEVICE void release_keys() {
    release(state_.barriers.k.empty[keys_.stage()]);
    keys_.count++;
  }
  FA_DEVICE void release_values() {
    release(state_.barriers.v.empty[values_.stage()]);
    values_.count++;
  }

  // Barrier 0 belongs to the whole block; each consumer has a barrier that its predecessor opens.
  FA_DEVICE void wait_for_turn() { named_barrier_wait(1 + number_, 256); }
  FA_DEVICE void pass_turn() {
    named_barrier_arrive(1 + (number_ + 1) % Tile::kConsumers, 256);
  }

  const Sm90ForwardArgs &args_;
  const State &state_;
  const int number_;
  StageCounter<1> queries_;
  StageCounter<Tile::kStages> keys_;
  StageCounter<Tile::kStages> values_;
};

}  // namespace flash_attn
