// The pipeline of SM80. Tiles of K and V pass through one ring of slots in the order of use: K 0,
// V 0, K 1, V 1, .... Copies run kSlots - 1 tiles ahead of the products.
//
//   tile      K0   V0   K1   V1   K2 ...          kSlots = 3: while the products use K0,
//   slot       0    1    2    0    1 ...          V0 and K1 are in flight to slots 1 and 2
//
// One barrier per tile has two purposes: all threads see the tile in use, and all threads have
// finished the tile before it, whose slot the next copy overwrites.
//
// Addresses of copies cost instruction slots that the products need. A thread always copies the
// same columns of the same rows of a tile: without pages its addresses move on from tile to tile,
// and with pages it looks the numbers of the next tile's pages up while the copies of a tile are in
// flight.
//
// After the rows of a tile of Q8_0 come their factors, kScales of 16 bits a row.
#pragma once

#include "core/key_window.cuh"
#include "sm80/tile.cuh"

namespace flash_attn {

template <class T, int kHeadDim, int kKeys, int kSlots, int kThreads, int kScales = 0>
class TileRing {
 public:
  using Share = TileShare<kHeadDim, kKeys, kThreads>;
  static constexpr int kTileElements = kKeys * (kHeadDim + kScales);

  // A ring in shared memory for one head's keys and values of a sequence.
  FA_DEVICE TileRing(T *slots, const KeyValueArgs &kv, const KeyRows &rows, int n_keys, int kv_head,
                     const KeyTiles &tiles)
      : slots_(slots), kv_(kv), rows_(rows), n_keys_(n_keys), tiles_(tiles) {
    const int64_t key = rows.is_paged() ? 0 : rows.row(tiles.first * kKeys + Share::row(0));
    const auto start = [&](const void *data, const Strides &stride) {
      const int64_t page = rows.is_paged() ? 0 : rows.page(0);
      return static_cast<const T *>(data) + page * stride.batch + key * stride.row +
             kv_head * stride.head + 8 * Share::column();
    };
    at_[0] = start(kv.k, kv.k_stride);
    at_[1] = start(kv.v, kv.v_stride);
    if constexpr (kScales > 0) {
      scales_at_[0] = static_cast<const T *>(kv.k_scales) + kv_head * kv.k_stride.head;
      scales_at_[1] = static_cast<const T *>(kv.v_scales) + kv_head * kv.v_stride.head;
      scale_page_ = rows.is_paged() ? 0 : rows.page(0);
    }
    if (rows.is_paged()) look_up(tiles.first);
  }

  // Starts the first copies. Copies that the caller started before join the first of them.
  FA_DEVICE void start() {
#pragma unroll
    for (int i = 0; i < kSlots - 1; i++) {
      if (i % 2 == 0) {
        copy<0>(tiles_.first + i / 2, i);
      } else {
        copy<1>(tiles_.first + i / 2, i);
      }
    }
  }

  // Waits for a tile of keys. Keys and values must be taken alternately, tile by tile.
  FA_DEVICE const T *take_keys(int tile) { return take<0>(tile); }
  // Waits for the values of the keys just taken.
  FA_DEVICE const T *take_values(int tile) { return take<1>(tile); }

  // Must be called after the last tile: waits for the remaining empty groups.
  FA_DEVICE void finish() { copy_async_wait<0>(); }

 private:
  // Waits for keys (0) or values (1), and starts the copy for kSlots - 1 tiles later, into the
  // slot of the previous tile.
  template <int kKind>
  FA_DEVICE const T *take(int tile) {
    constexpr int kAhead = kKind + kSlots - 1;
    copy_async_wait<kSlots - 2>();
    block_barrier();
    copy<kAhead % 2>(tile + kAhead / 2, slot_ == 0 ? kSlots - 1 : slot_ - 1);
    const T *const taken = slots_ + slot_ * kTileElements;
    slot_ = slot_ + 1 == kSlots ? 0 : slot_ + 1;
    return taken;
  }

  // Starts the copy of a tile if it belongs to the sequence. Always makes a group, so that there
  // are as many groups as tiles.
  template <int kKind>
  FA_DEVICE void copy(int tile, int slot) {
    if (tile < tiles_.end) {
      T *const to = slots_ + slot * kTileElements + Share::offset();
      const Strides &stride = kKind == 0 ? kv_.k_stride : kv_.v_stride;
      const int keys_left = n_keys_ - tile * kKeys;
      if constexpr (kScales > 0) copy_scales(slot, scales_at_[kKind], stride, tile);
      if (rows_.is_paged()) {
        copy_pages(to, at_[kKind], stride, tile, keys_left);
        // Keys and values of a tile are in pages of the same numbers.
        if constexpr (kKind == 1) look_up(tile + 1);
      } else {
        copy_next(to, at_[kKind], stride, keys_left);
      }
    }
    copy_async_commit();
  }

  // Copies the rows from `at` on, and moves `at` to the next tile.
  FA_DEVICE void copy_next(T *to, const T *&at, const Strides &stride, int keys_left) {
    const int64_t step = stride.row * Share::kRowsAtOnce;
    if (keys_left >= kKeys) {
#pragma unroll
      for (int i = 0; i < Share::kTimes; i++) {
        Share::copy(to, i, at);
        at += step;
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < Share::kTimes; i++) {
        Share::copy_if(to, i, at, Share::row(i) < keys_left);
        at += step;
      }
    }
  }

  FA_DEVICE void copy_pages(T *to, const T *head, const Strides &stride, int tile, int keys_left) {
#pragma unroll
    for (int i = 0; i < Share::kTimes; i++) {
      const int row = Share::row(i);
      const T *const from = head + static_cast<int64_t>(pages_[i]) * stride.batch +
                            rows_.row(tile * kKeys + row) * stride.row;
      Share::copy_if(to, i, from, row < keys_left);
    }
  }

  // The thread's first row of those whose factors it copies: eight rows have kScales chunks of 16
  // bytes, and are in one page.
  FA_DEVICE static int scale_row() { return thread_index() / kScales * 8; }

  // Copies the thread's 16 bytes of factors; those of rows after the last become zeros.
  FA_DEVICE void copy_scales(int slot, const T *head, const Strides &stride, int tile) {
    static_assert(kKeys / 8 * kScales <= kThreads);
    if (thread_index() >= kKeys / 8 * kScales) return;
    const int key = tile * kKeys + scale_row(), chunk = thread_index() % kScales;
    const T *const from = head + static_cast<int64_t>(scale_page_) * stride.batch +
                          static_cast<int64_t>(rows_.row(key)) * kScales + 8 * chunk;
    T *const to = slots_ + slot * kTileElements + kKeys * kHeadDim + 8 * thread_index();
    const int left = (n_keys_ - key) * kScales - 8 * chunk;
    copy_async_part(to, from, left < 0 ? 0 : left > 8 ? 16 : 2 * left);
  }

  // Reads the numbers of the pages that hold the thread's rows of a tile.
  FA_DEVICE void look_up(int tile) {
    const auto page = [&](int row) {
      const int key = tile * kKeys + row;
      return tile < tiles_.end && key < n_keys_ ? rows_.page(key) : 0;
    };
#pragma unroll
    for (int i = 0; i < Share::kTimes; i++) pages_[i] = page(Share::row(i));
    if constexpr (kScales > 0) scale_page_ = page(scale_row());
  }

  T *const slots_;
  const KeyValueArgs &kv_;
  const KeyRows &rows_;
  const int n_keys_;
  const KeyTiles &tiles_;
  const T *at_[2];            // K and V: the thread's next row, or with pages the head's first
  int pages_[Share::kTimes];  // of the next tile, for each of the thread's rows
  const T *scales_at_[2];     // K and V: the head's first
  int scale_page_;
  int slot_ = 0;              // of the next tile to be taken
};

}  // namespace flash_attn
