#pragma once

#include "../common/backend.h"
#include "parallel.h"

namespace forge {

// Copies rows of a part by several threads, or has them made.
inline void copy_part(uint8_t* to, const WeightPart& part, uint64_t first, uint64_t n_rows,
                      uint64_t row_bytes, size_t n_threads) {
  if (!part.source) {
    return parallel_copy(to, part.data + first * row_bytes, n_rows * row_bytes, n_threads);
  }
  // What one thread makes at a time.
  constexpr uint64_t kPieceBytes = 1u << 18;
  const uint64_t piece = std::max<uint64_t>(1, kPieceBytes / row_bytes);
  parallel_for(divide_up(n_rows, piece), n_threads, [&](size_t i) {
    const uint64_t begin = i * piece;
    part.source->make(part.first_made + first + begin, std::min(piece, n_rows - begin),
                      to + begin * row_bytes);
  });
}

}  // namespace forge
