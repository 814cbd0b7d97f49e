// The keys that a query sees. Causal masks, sliding windows and the end of the sequence give one
// interval per query, which moves by one key from query to query.
//
//            keys 0 .. n_keys                 n_keys = 6, n_queries = 4, causal, window_left = 2
//   query 0  . # # . . .                      shift = 2: query 0 stands at key 2
//   query 1  . # # # . .
//   query 2  . . # # # .
//   query 3  . . . # # #
#pragma once

#include "core/sequence.cuh"

namespace flash_attn {

// A half-open interval of tiles of keys.
struct KeyTiles {
  int first;
  int end;
};

class KeyWindow {
 public:
  FA_DEVICE KeyWindow(const ScoreArgs &score, const Sequence &sequence)
      : shift_(sequence.n_keys - sequence.n_queries),
        left_(score.window_left),
        right_(score.window_right),
        n_keys_(sequence.n_keys) {}

  // The first key that a query sees.
  FA_DEVICE int first(int query) const {
    const int key = query + shift_ - left_;
    return key < 0 ? 0 : key;
  }

  // One past the last key that a query sees; at most `first` if it sees none.
  FA_DEVICE int end(int query) const {
    const int key = query + shift_ + right_ + 1;
    return key > n_keys_ ? n_keys_ : key;
  }

  // The tiles of kKeys keys that contain a key visible to queries first_query to last_query.
  template <int kKeys>
  FA_DEVICE KeyTiles tiles(int first_query, int last_query) const {
    const int from = first(first_query), to = end(last_query);
    if (to <= from) return {0, 0};
    return {from / kKeys, (to + kKeys - 1) / kKeys};
  }

  // The tiles of kKeys keys of which each of the queries sees every key; `end` may be the lesser.
  template <int kKeys>
  FA_DEVICE KeyTiles whole_tiles(int first_query, int last_query) const {
    const int to = end(first_query);
    return {(first(last_query) + kKeys - 1) / kKeys, to < 0 ? 0 : to / kKeys};
  }

  // True if each of the queries sees every key of [first_key, end_key).
  FA_DEVICE bool sees_all(int first_query, int last_query, int first_key, int end_key) const {
    return first_key >= first(last_query) && end_key <= end(first_query);
  }

 private:
  int shift_;
  int left_;
  int right_;
  int n_keys_;
};

}  // namespace flash_attn
