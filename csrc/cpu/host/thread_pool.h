#pragma once

// Worker threads. One run at a time; the calling thread takes part and returns when all is done.

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

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
  // `n_threads` counts the calling thread of a run.
  explicit ThreadPool(uint32_t n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t n_threads() const { return static_cast<uint32_t>(workers_.size()) + 1; }

  // Calls body(index, thread) once for each index below `count`; free threads take indices in
  // order, and `thread` is below n_threads(). Writes before the call are visible to the body, and
  // writes of the body are visible after it. An exception of the body ends the run and is rethrown
  // here. Must not be called from two threads at once, nor from a body.
  template <class Body>
  void run(uint32_t count, Body&& body) {
    if (count == 0) return;
    if (count == 1 || workers_.empty()) {
      for (uint32_t i = 0; i < count; ++i) body(i, 0u);
      return;
    }
    using Called = std::remove_reference_t<Body>;
    call_ = [](void* context, uint32_t index, uint32_t thread) {
      (*static_cast<Called*>(context))(index, thread);
    };
    context_ = const_cast<void*>(static_cast<const void*>(&body));
    count_ = count;
    run_job();
  }

 private:
  void run_job();
  void work(uint32_t thread) noexcept;
  void worker_loop(uint32_t thread);

  // The job, written while no worker can be in it.
  void (*call_)(void*, uint32_t, uint32_t) = nullptr;
  void* context_ = nullptr;
  uint32_t count_ = 0;

  // The number of the latest job, a bit that is set while workers can join it, and the number of
  // workers in it (see the masks in thread_pool.cpp). A worker that wakes too late finds the job
  // closed and does not join, so that a run waits only for workers that joined. Job numbers may
  // wrap: a worker that mistakes a job for an earlier one leaves it to the others.
  alignas(64) std::atomic<uint32_t> state_{0};
  alignas(64) std::atomic<uint32_t> next_{0};
  alignas(64) std::atomic<bool> stopping_{false};

  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::vector<std::thread> workers_;
};

}  // namespace forge::cpu
