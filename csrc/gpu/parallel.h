#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

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

}  // namespace forge
