// The pipeline of SM80. Tiles of K and V pass through one ring of slots in the order of use: K 0,
// V 0, K 1, V 1, .... Copies run kSlots - 1 tiles ahead of the products.
//
//   tile      K0   V0   K1   V1   K2 ...          kSlots = 3: while the products use K0,
//   slot       0    1    2    0    1 ...          V0 and K1 are in flight to slots 1 and 2
//
// One barrier per tile has two purposes: all threads see the tile in use, and all threads have
// finished the tile before it, whose slot the next copy overwrites.
#pragma once

#include "core/key_window.cuh"
#include "sm80/tile.cuh"

namespace flash_attn {

template <class T, int kHeadDim, int kKeys, int kSlots, int kThreads>
class TileRing {
 public:
  static constexpr int kTileElements = kKeys * kHeadDim;
  static constexpr int kElements = kSlots * kTileElements;

  /// A ring in shared memory for one head's keys and values of a sequence.
  FA_DEVICE TileRing(T *slots, const KeyValueArgs &kv, const Sequence &sequence, int kv_head,
                     const KeyTiles &tiles)
      : slots_(slots), kv_(kv), sequence_(sequence), kv_head_(kv_head), tiles_(tiles) {}

  /// Starts the first copies. Copies that the caller started before join the first of them.
  FA_DEVICE void start() {
#pragma unroll
    for (int i = 0; i < kSlots - 1; i++) copy(tiles_.first + i / 2, i % 2 == 0, i);
  }

  /// Waits for a tile of keys. Keys and values must be taken alternately, tile by tile.
  FA_DEVICE const T *take_keys(int tile) { return take<0>(tile); }
  /// Waits for the values of the keys just taken.
  FA_DEVICE const T *take_values(int tile) { return take<1>(tile); }

  /// Must be called after the last tile: waits for the remaining empty groups.
  FA_DEVICE void finish() { copy_async_wait<0>(); }

 private:
  /// Waits for keys (0) or values (1), and starts the copy for kSlots - 1 tiles later, into the
  /// slot of the previous tile.
  template <int kKind>
  FA_DEVICE const T *take(int tile) {
    constexpr int kAhead = kKind + kSlots - 1;
    copy_async_wait<kSlots - 2>();
    block_barrier();
    copy(tile + kAhead / 2, kAhead % 2 == 0, slot_ == 0 ? kSlots - 1 : slot_ - 1);
    const T *const taken = slots_ + slot_ * kTileElements;
    slot_ = slot_ + 1 == kSlots ? 0 : slot_ + 1;
    return taken;
  }

  /// Starts the copy of a tile if it belongs to the sequence. Always makes a group, so that there
  /// are as many groups as tiles.
  FA_DEVICE void copy(int tile, bool is_keys, int slot) {
    if (tile < tiles_.end) {
      const KeyRows rows(kv_, sequence_);
      const Strides &stride = is_keys ? kv_.k_stride : kv_.v_stride;
      const T *const head =
          static_cast<const T *>(is_keys ? kv_.k : kv_.v) + kv_head_ * stride.head;
      copy_rows_async<T, kHeadDim, kKeys, kThreads>(
          slots_ + slot * kTileElements, head, [&](int row) -> const T * {
            const int key = tile * kKeys + row;
            return key < sequence_.n_keys ? head + rows.offset(stride, key) : nullptr;
          });
    }
    copy_async_commit();
  }

  T *const slots_;
  const KeyValueArgs &kv_;
  const Sequence &sequence_;
  const int kv_head_;
  const KeyTiles &tiles_;
  int slot_ = 0;  // of the next tile to be taken
};

}  // namespace flash_attn
