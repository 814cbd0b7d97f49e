#pragma once

// Worker threads, on one or more NUMA nodes. One run at a time; the calling thread takes part and
// returns when all is done.

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "topology.h"

namespace forge::cpu {

#if defined(_WIN32)
// The waits of libstdc++ without futexes lose wake-ups: GCC 12 notifies without holding the lock
// that a waiter checks under. These are the system's; the first may return early.
void wait_on_address(void* address, void* value, size_t bytes);
void wake_by_address(void* address);
#endif

// Waits until the word has another value.
template <class Word>
void wait_while(std::atomic<Word>& word, Word value) {
#if defined(_WIN32)
  while (word.load(std::memory_order_acquire) == value) {
    wait_on_address(&word, &value, sizeof value);
  }
#else
  word.wait(value, std::memory_order_acquire);
#endif
}

// Wakes all threads that wait for a change of the word.
template <class Word>
void wake_all(std::atomic<Word>& word) {
#if defined(_WIN32)
  wake_by_address(&word);
#else
  word.notify_all();
#endif
}

class ThreadPool {
 public:
  // The threads of each node. The calling thread of a run counts as the first of the first node.
  explicit ThreadPool(std::vector<NodeThreads> nodes);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t n_threads() const { return static_cast<uint32_t>(workers_.size()) + 1; }
  uint32_t n_nodes() const { return static_cast<uint32_t>(nodes_.size()); }
  const std::vector<NodeThreads>& nodes() const { return nodes_; }

  // See first_of in topology.h.
  uint64_t first_of(uint32_t node, uint64_t count) const {
    return cpu::first_of(nodes_, node, count);
  }

  // Calls body(index, thread) once for each index below `count`, and `thread` is below n_threads().
  // Each node has a share of the indices, which its free threads take in order; then they help
  // other nodes. Writes before the call are visible to the body, and writes of the body are visible
  // after it. An exception of the body ends the run and is rethrown here. Must not be called from
  // two threads at once, nor from a body.
  template <class Body>
  void run(uint32_t count, Body&& body) {
    for (uint32_t node = 0; node < n_nodes(); ++node) {
      shares_[node].end = static_cast<uint32_t>(first_of(node + 1, count));
    }
    run_shares(count, std::forward<Body>(body), true);
  }

  // Like run(), but the share of a node ends before ends[node].
  template <class Body>
  void run_divided(std::span<const uint32_t> ends, Body&& body) {
    set_ends(ends);
    run_shares(ends.back(), std::forward<Body>(body), true);
  }

  // Like run_divided(), but only threads of a node compute its share, which is the first to touch
  // its memory.
  template <class Body>
  void run_at_home(std::span<const uint32_t> ends, Body&& body) {
    set_ends(ends);
    run_shares(ends.back(), std::forward<Body>(body), false);
  }

 private:
  // The share of a node in the job. Threads of different nodes share no words until they help.
  struct Share {
    uint32_t end = 0;
    // The number of the latest job, a bit that is set while workers can join it, and the number of
    // the node's workers in it (see the masks in thread_pool.cpp). A worker that wakes too late
    // finds the job closed and does not join, so that a run waits only for workers that joined. Job
    // numbers may wrap: a worker that mistakes a job for an earlier one leaves it to the others.
    alignas(64) std::atomic<uint32_t> state{0};
    alignas(64) std::atomic<uint32_t> next{0};
  };

  void set_ends(std::span<const uint32_t> ends) {
    for (uint32_t node = 0; node < n_nodes(); ++node) shares_[node].end = ends[node];
  }

  template <class Body>
  void run_shares(uint32_t count, Body&& body, bool helps) {
    if (count == 0) return;
    if ((count == 1 && helps) || workers_.empty()) {
      for (uint32_t i = 0; i < count; ++i) body(i, 0u);
      return;
    }
    using Called = std::remove_reference_t<Body>;
    call_ = [](void* context, uint32_t index, uint32_t thread) {
      (*static_cast<Called*>(context))(index, thread);
    };
    context_ = const_cast<void*>(static_cast<const void*>(&body));
    helps_ = helps;
    run_job();
  }

  void run_job();
  // Computes the share of a node, then helps the others, unless each of their threads takes one of
  // the indices that are left: it reads its memory faster.
  void work(uint32_t home, uint32_t thread) noexcept;
  // Computes indices of a node's share until at most `n_left` are left.
  void take(uint32_t node, uint32_t thread, uint32_t n_left) noexcept;
  void worker_loop(uint32_t node, uint32_t thread);

  // The job, written while no worker can be in it.
  void (*call_)(void*, uint32_t, uint32_t) = nullptr;
  void* context_ = nullptr;
  bool helps_ = true;

  const std::vector<NodeThreads> nodes_;
  const std::unique_ptr<Share[]> shares_;
  alignas(64) std::atomic<bool> stopping_{false};

  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::vector<std::thread> workers_;
};

}  // namespace forge::cpu
