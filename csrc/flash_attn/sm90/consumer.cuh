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

#include <type_traits>

#include "core/forward_result.cuh"
#include "sm90/block_state.cuh"

namespace flash_attn {

template <class T, class Tile, bool kCapped>
class Consumer {
 public:
  using State = BlockState<T, Tile>;
  static constexpr int kHeadDim = Tile::kHeadDim;
  static constexpr int kKeyTiles = Tile::kKeys / 8;
  static constexpr int kOutTiles = kHeadDim / 8;
  using Scores = Accumulators<1, kKeyTiles>;
  using Out = Accumulators<1, kOutTiles>;
  static constexpr bool kIsE4m3 = Tile::kIsE4m3;
  using Softmax = OnlineSoftmax<1, kIsE4m3 ? 6 : 0>;
  using TileWeights = std::conditional_t<kIsE4m3, E4m3Weights<kKeyTiles>, Weights<1, kKeyTiles>>;

  FA_DEVICE Consumer(const Sm90ForwardArgs &args, const State &state, int number)
      : args_(args),
        state_(state),
        number_(number),
        q_(State::QueryPanels::depth_contiguous(state.q(), 64 * number)),
        k_(State::KeyPanels::depth_contiguous(state.k(0), 0)),
        v_(kIsE4m3 ? State::TransposedPanels::depth_contiguous(state.transposed(0), 0)
                   : State::KeyPanels::columns_contiguous(state.v(0))) {
    // Consumer 0 has the first turn.
    if (number_ == Tile::kConsumers - 1) pass_turn();
  }

  FA_DEVICE void run() {
    for (;; works_.count++) {
      const int stage = works_.stage();
      barrier_wait(state_.control.works.full[stage], works_.parity());
      const TileWork &work = state_.control.work[stage];
      if (work.head < 0) return;
      compute(work);
      warp_barrier();
      release(state_.control.works.empty[stage]);
    }
  }

 private:
  FA_DEVICE void compute(const TileWork &work) {
    if constexpr (kIsE4m3) load_descales(work);
    Softmax softmax(score(), kCapped);
    Out out;
    clear<1, kOutTiles>(out);
    accumulate(work, softmax, out);
    if constexpr (kIsE4m3) {
      const PerRow<1> descale = {{v_descale_, v_descale_}};
      scale_rows<1, kOutTiles>(out, descale);
      if (args_.e4m3.writes_f16 != 0) {
        write<f16>(work, softmax, out);
      } else {
        write<bf16>(work, softmax, out);
      }
    } else {
      write<T>(work, softmax, out);
    }
  }

  template <class Result>
  FA_DEVICE void write(const TileWork &work, const Softmax &softmax, Out &out) const {
    const int first_row = warp_row(work);
    write_forward_result<Result, 1, kOutTiles>(args_.forward, work.sequence, work.head, out,
                                               softmax,
                                               [&](int row) { return first_row + row; });
  }

  // Reads the factors of the tile's sequence and key head.
  FA_DEVICE void load_descales(const TileWork &work) {
    const E4m3Args &e4m3 = args_.e4m3;
    const int64_t at = work.sequence.index * e4m3.descale_batch_stride +
                       divide(work.head, args_.forward.schedule.group) * e4m3.descale_head_stride;
    const auto load = [&](const float *table) { return table == nullptr ? 1.0f : table[at]; };
    score_descale_ = load(e4m3.q_descale) * load(e4m3.k_descale);
    v_descale_ = load(e4m3.v_descale);
  }

  FA_DEVICE ScoreArgs score() const {
    ScoreArgs score = args_.forward.score;
    if constexpr (kIsE4m3) {
      score.scale_log2 *= score_descale_;
      score.softcap_scale *= score_descale_;
    }
    return score;
  }


  FA_DEVICE int warp_row(const TileWork &work) const {
    return work.first_row + 64 * number_ + thread_index() % 128 / 32 * 16;
  }

  // Iterates over the tiles of keys.
  FA_DEVICE void accumulate(const TileWork &work, Softmax &softmax, Out &out) {
    const KeyTiles tiles = work.tiles, whole = work.whole;
    if (tiles.first >= tiles.end) return;
    TileWeights weights;
    Shrink shrink;

    barrier_wait(state_.control.q.full[0], queries_.parity());
    {
      Scores scores;
      issue_scores(scores);
      product_wait<0>();
      release_keys();
      const bool is_whole = whole.first <= tiles.first && tiles.first < whole.end;
      cap(scores);
      if (!is_whole) mask(work, tiles.first, scores);
      shrink.needed = softmax.template raise<kKeyTiles>(scores, shrink.factor);
      softmax.template add<kKeyTiles>(scores);
      pack(weights, scores);
    }
    // Tiles that need no mask are between tiles that do.
    for (int tile = tiles.first + 1; tile < tiles.end; tile++) {
      if (tile >= whole.first) {
        for (; tile < whole.end; tile++) {
          add_tile<false>(work, tile, softmax, out, weights, shrink);
        }
        if (tile >= tiles.end) break;
      }
      add_tile<true>(work, tile, softmax, out, weights, shrink);
    }

    release(state_.control.q.empty[0]);
    queries_.count++;
    if constexpr (kScalesFirst) scale(out, shrink);
    issue_out(out, weights);
    product_wait<0>();
    release_values();
  }

  // The factor for O that a tile of keys leads to.
  struct Shrink {
    PerRow<1> factor;
    bool needed;
  };
  FA_DEVICE static void scale(Out &out, const Shrink &shrink) {
    if (shrink.needed) scale_rows<1, kOutTiles>(out, shrink.factor);
  }

  // Adds the previous tile's weights times its values to O, and replaces the weights by those of
  // `tile`; `shrink` becomes the factor for earlier weights.
  template <bool kMasked>
  FA_DEVICE void add_tile(const TileWork &work, int tile, Softmax &softmax, Out &out,
                          TileWeights &weights, Shrink &shrink) {
    Scores scores;
    wait_for_turn();
    issue_scores(scores);
    if constexpr (kScalesFirst) scale(out, shrink);
    issue_out(out, weights);
    pass_turn();
    product_wait<1>();
    release_keys();
    cap(scores);
    if constexpr (kMasked) mask(work, tile, scores);
    shrink.needed = softmax.template raise<kKeyTiles>(scores, shrink.factor);
    softmax.template add<kKeyTiles>(scores);
    softmax.complete();
    product_wait<0>();
    release_values();
    if constexpr (!kScalesFirst) scale(out, shrink);
    pack(weights, scores);
  }

  FA_DEVICE static void pack(TileWeights &weights, const Scores &scores) {
    if constexpr (kIsE4m3) {
      pack_weights<kKeyTiles>(weights, scores);
    } else {
      pack_weights<T, 1, kKeyTiles>(weights, scores);
    }
  }

  // scores = Q K^T of the next tile of keys, as one group of products.
  FA_DEVICE void issue_scores(Scores &scores) {
    const int stage = keys_.stage();
    barrier_wait(state_.control.k.full[stage], keys_.parity());
    const uint32_t keys = k_ + stage * kStageStep;
    product_fence();
#pragma unroll
    for (int k = 0; k < Tile::kColumns / 16; k++) {
      WarpgroupProduct<T, Tile::kKeys>::from_shared(scores, State::QueryPanels::depth_step(q_, k),
                                                    State::KeyPanels::depth_step(keys, k), k > 0);
    }
    product_commit();
  }

  // out += weights V of the next tile of values, as one group of products.
  FA_DEVICE void issue_out(Out &out, const TileWeights &weights) {
    const int stage = values_.stage();
    barrier_wait(state_.values().full[stage], values_.parity());
    const uint32_t values = v_ + stage * kStageStep;
    product_fence();
#pragma unroll
    for (int k = 0; k < Tile::kKeys / (kIsE4m3 ? 32 : 16); k++) {
      WarpgroupProduct<T, kHeadDim>::from_registers(
          out, weights[0][k],
          kIsE4m3 ? State::TransposedPanels::depth_step(values, k)
                  : State::KeyPanels::row_step(values, k));
    }
    product_commit();
  }

  FA_DEVICE void cap(Scores &scores) const {
    if constexpr (kCapped) cap_scores<1, kKeyTiles>(scores, score());
  }

  FA_DEVICE void mask(const TileWork &work, int tile, Scores &scores) const {
    const int first_row = warp_row(work);
    mask_scores<1, kKeyTiles>(scores, KeyWindow(args_.forward.score, work.sequence),
                              [&](int row) { return first_row + row; }, tile * Tile::kKeys);
  }

  // Marks a stage as read by this warp.
  FA_DEVICE static void release(Barrier &empty) {
    if (thread_index() % 32 == 0) barrier_arrive(empty);
  }
  FA_DEVICE void release_keys() {
    release(state_.control.k.empty[keys_.stage()]);
    keys_.count++;
  }
  FA_DEVICE void release_values() {
    release(state_.values().empty[values_.stage()]);
    values_.count++;
  }

  // Barrier 0 belongs to the whole block; each consumer has a barrier that its predecessor opens.
  FA_DEVICE void wait_for_turn() {
    if constexpr (Tile::kTurns) named_barrier_wait(1 + number_, 256);
  }
  FA_DEVICE void pass_turn() {
    if constexpr (Tile::kTurns) named_barrier_arrive(1 + (number_ + 1) % Tile::kConsumers, 256);
  }

  // O of the tiles before is scaled while S of the next tile is computed, instead of between the
  // products. With turns, the products of a turn must follow each other at once.
  static constexpr bool kScalesFirst = !Tile::kTurns;
  // Distance between the stages of K or V, in the low word of a descriptor.
  static constexpr int kStageStep = Tile::kKeyElements * 2 / 16;

  const Sm90ForwardArgs &args_;
  const State &state_;
  const int number_;
  float score_descale_ = 1, v_descale_ = 1;
  const uint32_t q_, k_, v_;  // low words of descriptors: this consumer's rows, and stage 0
  StageCounter<State::kWorkStages> works_;
  StageCounter<1> queries_;
  StageCounter<Tile::kStages> keys_;
  StageCounter<Tile::kStages> values_;
};

}  // namespace flash_attn
