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
// Two bits of key, changing every other row, complete the swizzle.
#pragma once

#include "device/device.cuh"

namespace flash_attn {

template <int kHeadDim>
struct SwizzledTile {
  static constexpr int kChunks = kHeadDim / 8;
  /// Number of chunks within which the chunks of a row are permuted.
  static constexpr int kSpan = kChunks % 8 == 0 ? 8 : 4;
  static_assert(kChunks % kSpan == 0);

  /// Offset of a chunk, in elements.
  FA_DEVICE static int offset(int row, int chunk) {
    const int key = kSpan == 8 ? row & 7 : (row >> 1) & 3;
    return row * kHeadDim + ((chunk ^ key) << 3);
  }
};

/// Starts the copies of kRows rows by kThreads threads. `row_at(row)` points to a row in memory,
/// null for zeros; `anywhere` is an address that need not be readable.
///
/// The threads of one span copy 128 (64) adjacent bytes of a row. A thread stays in its column, so
/// the swizzle of its chunks is the same for all its rows.
template <class T, int kHeadDim, int kRows, int kThreads, class RowAt>
FA_DEVICE void copy_rows_async(T *tile, const void *anywhere, RowAt row_at) {
  using Layout = SwizzledTile<kHeadDim>;
  constexpr int kSpan = Layout::kSpan;
  constexpr int kRowsAtOnce = kThreads / kSpan;
  const int column = thread_index() % kSpan;
#pragma unroll 1
  for (int i = 0; i < (kRows + kRowsAtOnce - 1) / kRowsAtOnce; i++) {
    const int row = i * kRowsAtOnce + thread_index() / kSpan;
    if (kRows % kRowsAtOnce != 0 && row >= kRows) break;
    const T *const from = row_at(row);
#pragma unroll
    for (int chunk = column; chunk < Layout::kChunks; chunk += kSpan) {
      copy_async_16(tile + Layout::offset(row, chunk),
                    from == nullptr ? anywhere : static_cast<const void *>(from + 8 * chunk),
                    from != nullptr);
    }
  }
}

}  // namespace flash_attn
