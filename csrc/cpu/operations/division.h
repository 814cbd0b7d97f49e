#pragma once

// Sizes of the tasks in which few tokens' products and attention are divided among the threads of a
// NUMA node: large pieces first, as starting one is slow; small ones last, so that threads end
// together. bench/native/numa_model.cpp simulates machines on paper with them.

#include <algorithm>
#include <cstdint>

namespace forge::cpu {

// Rows are divided among NUMA nodes, and into tasks with few tokens, in multiples of this.
constexpr uint32_t kRowsTogether = 32;

// A task is 1 / kShares of a thread's share of the remaining rows.
constexpr uint32_t kShares = 3;

// Minimum bytes of a task: shorter reads do not reach the bandwidth of memory.
constexpr uint64_t kLeastTaskBytes = 16 << 10;

// Maximum rows of each part of a task of a gated product.
constexpr uint32_t kMostGatedRows = 1024;

// Returns the rows of the next task of a product, before it is cut where they end.
constexpr uint64_t task_rows(uint64_t bytes_left, uint64_t row_bytes, uint32_t n_threads) {
  const uint64_t piece = std::max(kLeastTaskBytes, bytes_left / (kShares * n_threads));
  const uint64_t together = row_bytes * kRowsTogether;
  return (piece + together - 1) / together * kRowsTogether;
}

// Returns the rows of each part of the next task of a gated product.
constexpr uint32_t gated_task_rows(uint32_t rows_left, uint64_t row_bytes, uint32_t n_threads) {
  const uint64_t least = (kLeastTaskBytes / row_bytes / kRowsTogether + 1) * kRowsTogether;
  const uint32_t rows = rows_left / (kShares * n_threads) / kRowsTogether * kRowsTogether;
  return std::clamp(rows, static_cast<uint32_t>(std::min<uint64_t>(kMostGatedRows, least)),
                    kMostGatedRows);
}

// Returns the splits of the longest attention task that is not divided, of a node with `n_splits`.
constexpr uint32_t most_whole_splits(uint32_t n_splits, uint32_t n_threads) {
  return std::max(1u, n_splits / (4 * n_threads));
}

}  // namespace forge::cpu
