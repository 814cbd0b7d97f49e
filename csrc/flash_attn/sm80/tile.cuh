// Tiles of rows in shared memory, in the layout that cp.async writes and ldmatrix reads.
//
// A row holds kHeadDim elements in 16-byte chunks. ldmatrix reads the same chunk of eight rows at a
// time; at the same offset in each row, all eight would be in the same banks. Chunk c of row r is
// therefore stored at offset c ^ key(r), which spreads eight neighbouring rows over all 32 banks:
//
//   row 0 (key 0)   chunk 0 1 2 3 4 5 6 7
//   row 1 (key 1)   chunk 1 0 3 2 5 4 7 6
//   row 2 (key 2)   chunk 2 3 0 1 6 7 4 5   ...
//
// Rows of 96 elements have 12 chunks, so every other row already starts half-way round the banks.
// Two bits of key, changing every other row, complete the swizzle. Of rows of 48, four in a row
// start at different quarters, and one bit of key is left.
#pragma once

#include "device/device.cuh"

namespace flash_attn {

template <int kHeadDim>
struct SwizzledTile {
  static constexpr int kChunks = kHeadDim / 8;
  // Number of chunks within which the chunks of a row are permuted.
  static constexpr int kSpan = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : 2;
  static_assert(kChunks % kSpan == 0);

  // Offset of a chunk, in elements.
  FA_DEVICE static int offset(int row, int chunk) {
    const int key = (row >> (kSpan == 8 ? 0 : kSpan == 4 ? 1 : 2)) & (kSpan - 1);
    return row * kHeadDim + ((chunk ^ key) << 3);
  }

  // The offset of the chunk that is `chunks`, an even number, after chunk 0 or 1 of the same row,
  // whose offset is `at`. The chunks at one place of their spans take one XOR for all rows.
  FA_DEVICE static int after(int at, int chunks) {
    static_assert(kHeadDim % (8 * kSpan) == 0);
    return (at ^ (chunks % kSpan << 3)) + chunks / kSpan * (8 * kSpan);
  }
};

// The part of a tile that the calling thread copies. The threads of one span copy 128 (64, 32)
// adjacent bytes of a row. A thread stays in its column, and its rows have the same key, so that
// all its chunks have fixed distances in the tile.
template <int kHeadDim, int kRows, int kThreads>
struct TileShare {
  using Layout = SwizzledTile<kHeadDim>;
  static constexpr int kSpan = Layout::kSpan;
  static constexpr int kRowsAtOnce = kThreads / kSpan;
  static_assert(kRowsAtOnce % 8 == 0);
  // Rows of a thread, and chunks of each.
  static constexpr int kTimes = (kRows + kRowsAtOnce - 1) / kRowsAtOnce;
  static constexpr int kEach = Layout::kChunks / kSpan;
  // False if some threads have no row, or one less.
  static constexpr bool kEven = kRows % kRowsAtOnce == 0;

  FA_DEVICE static int column() { return thread_index() % kSpan; }
  FA_DEVICE static int row(int i) { return i * kRowsAtOnce + thread_index() / kSpan; }
  // Offset of the thread's first chunk, in elements.
  FA_DEVICE static int offset() { return Layout::offset(row(0), column()); }

  // Starts to copy the thread's chunks of its row i, from the first of them in memory. `tile`
  // points to the thread's first chunk.
  template <class T>
  FA_DEVICE static void copy(T *tile, int i, const T *from) {
    if (!kEven && row(i) >= kRows) return;
#pragma unroll
    for (int chunk = 0; chunk < kEach; chunk++) {
      copy_async_16(tile + i * kRowsAtOnce * kHeadDim + 8 * kSpan * chunk,
                    from + 8 * kSpan * chunk);
    }
  }

  // As copy; writes zeros if not `valid`, when `from` need not be readable.
  template <class T>
  FA_DEVICE static void copy_if(T *tile, int i, const T *from, bool valid) {
    if (!kEven && row(i) >= kRows) return;
#pragma unroll
    for (int chunk = 0; chunk < kEach; chunk++) {
      copy_async_16(tile + i * kRowsAtOnce * kHeadDim + 8 * kSpan * chunk, from + 8 * kSpan * chunk,
                    valid);
    }
  }
};

// Starts the copies of kRows rows by kThreads threads. `row_at(row)` points to a row in memory,
// null for zeros; `anywhere` is an address that need not be readable.
template <class T, int kHeadDim, int kRows, int kThreads, class RowAt>
FA_DEVICE void copy_rows_async(T *tile, const T *anywhere, RowAt row_at) {
  using Share = TileShare<kHeadDim, kRows, kThreads>;
#pragma unroll 1
  for (int i = 0; i < Share::kTimes; i++) {
    const T *const from = Share::kEven || Share::row(i) < kRows ? row_at(Share::row(i)) : nullptr;
    Share::copy_if(tile + Share::offset(), i,
                   from == nullptr ? anywhere : from + 8 * Share::column(), from != nullptr);
  }
}

// Copies rows to a tile by loads and stores, whose order does not depend on copies in flight.
// A barrier must follow.
template <class T, int kHeadDim, int kRows, int kThreads, class RowAt>
FA_DEVICE void copy_rows(T *tile, RowAt row_at) {
  using Share = TileShare<kHeadDim, kRows, kThreads>;
  Words4 words[Share::kTimes][Share::kEach];
#pragma unroll
  for (int i = 0; i < Share::kTimes; i++) {
    if (!Share::kEven && Share::row(i) >= kRows) continue;
    const T *const from = row_at(Share::row(i)) + 8 * Share::column();
#pragma unroll
    for (int c = 0; c < Share::kEach; c++) {
      load_16_bytes(words[i][c], from + 8 * Share::kSpan * c);
    }
  }
#pragma unroll
  for (int i = 0; i < Share::kTimes; i++) {
    if (!Share::kEven && Share::row(i) >= kRows) continue;
    T *const to = tile + Share::offset() + i * Share::kRowsAtOnce * kHeadDim;
#pragma unroll
    for (int c = 0; c < Share::kEach; c++) {
      store_16_bytes(to + 8 * Share::kSpan * c, words[i][c]);
    }
  }
}

}  // namespace flash_attn
