#pragma once

// Loops and copies on several host threads.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "../common/backend.h"
#include "rounding.h"

namespace forge {

// Calls body(i) for every i < n on at most n_threads threads, including the caller's. The first
// exception stops the loop and is rethrown after the calls in flight have ended.
template <class Body>
void parallel_for(size_t n, size_t n_threads, Body&& body) {
  std::atomic<size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    for (size_t i = next++; i < n; i = next++) {
      try {
        body(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = n;
      }
    }
  };
  // Joins the threads even if starting one fails; Apple's C++ library has no jthread.
  struct Threads {
    std::vector<std::thread> list;
    ~Threads() {
      for (std::thread& thread : list) thread.join();
    }
  };
  {
    Threads threads;
    for (size_t i = 1; i < std::min(n, n_threads); ++i) threads.list.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

inline void parallel_copy(uint8_t* to, const uint8_t* from, uint64_t bytes, size_t n_threads) {
  // Bytes that one thread copies at a time.
  constexpr uint64_t kPieceBytes = 1u << 20;
  parallel_for(divide_up(bytes, kPieceBytes), n_threads, [&](size_t i) {
    const uint64_t begin = i * kPieceBytes;
    std::memcpy(to + begin, from + begin, std::min(kPieceBytes, bytes - begin));
  });
}

// Copies rows of a part of a weight, or decodes them if the part has a source.
inline void copy_part(uint8_t* to, const WeightPart& part, uint64_t first, uint64_t n_rows,
                      uint64_t row_bytes, size_t n_threads) {
  if (!part.source) {
    return parallel_copy(to, part.data + first * row_bytes, n_rows * row_bytes, n_threads);
  }
  // Bytes that one thread decodes at a time.
  constexpr uint64_t kPieceBytes = 1u << 18;
  const uint64_t piece = std::max<uint64_t>(1, kPieceBytes / row_bytes);
  parallel_for(divide_up(n_rows, piece), n_threads, [&](size_t i) {
    const uint64_t begin = i * piece;
    part.source->make(part.first_made + first + begin, std::min(piece, n_rows - begin),
                      to + begin * row_bytes);
  });
}

}  // namespace forge
