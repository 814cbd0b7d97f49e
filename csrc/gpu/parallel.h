#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "rounding.h"

namespace forge {

// Calls body(i) for every i < n from at most n_threads threads, the caller's among them. The first
// exception stops the rest and is thrown when those under way have ended.
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
  // Joins whatever happens while threads start; Apple's C++ library has no jthread.
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

// Copies by several threads.
inline void parallel_copy(uint8_t* to, const uint8_t* from, uint64_t bytes, size_t n_threads) {
  // What one thread copies at a time.
  constexpr uint64_t kPieceBytes = 1u << 20;
  parallel_for(divide_up(bytes, kPieceBytes), n_threads, [&](size_t i) {
    const uint64_t begin = i * kPieceBytes;
    std::memcpy(to + begin, from + begin, std::min(kPieceBytes, bytes - begin));
  });
}

}  // namespace forge
