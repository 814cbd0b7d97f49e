#include "thread_pool.h"

#if defined(_WIN32)
#include "../../common/windows_api.h"
#endif

#include <chrono>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace forge::cpu {

namespace {

// The fields of the state: workers in the job (the border admits 1024 threads), open, job number.
constexpr uint32_t kWorkers = (1u << 11) - 1;
constexpr uint32_t kOpen = 1u << 11;
constexpr uint32_t kJob = 1u << 12;

uint32_t job_of(uint32_t state) { return state / kJob; }

// Time that a worker polls for the next job before it sleeps: longer than the pause between two
// steps of a model, much shorter than a time slice of the system.
constexpr std::chrono::microseconds kSpin{100};

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Calls `done` until it returns true, for at most kSpin. Returns true if it did.
template <class Done>
bool spin(Done&& done) {
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

}  // namespace

#if defined(_WIN32)

void wait_on_address(void* address, void* value, size_t bytes) {
  WaitOnAddress(address, value, bytes, INFINITE);
}

void wake_by_address(void* address) { WakeByAddressAll(address); }

#endif

ThreadPool::ThreadPool(uint32_t n_threads) {
  for (uint32_t i = 1; i < n_threads; ++i) workers_.emplace_back([this, i] { worker_loop(i); });
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  state_ += kJob;
  wake_all(state_);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_job() {
  next_.store(0, std::memory_order_relaxed);
  state_.store((job_of(state_.load(std::memory_order_relaxed)) + 1) * kJob | kOpen,
               std::memory_order_seq_cst);
  wake_all(state_);
  work(0);
  state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  const auto all_left = [this] {
    return (state_.load(std::memory_order_acquire) & kWorkers) == 0;
  };
  // A busy worker may need this core.
  while (!spin(all_left)) std::this_thread::yield();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::work(uint32_t thread) noexcept {
  try {
    for (;;) {
      const uint32_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= count_) return;
      call_(context_, index, thread);
    }
  } catch (...) {
    next_.store(count_, std::memory_order_relaxed);
    const std::lock_guard lock(failure_mutex_);
    failure_ = std::current_exception();
  }
}

void ThreadPool::worker_loop(uint32_t thread) {
  uint32_t seen = 0;
  for (;;) {
    uint32_t state = state_.load(std::memory_order_acquire);
    const auto changed = [&] {
      state = state_.load(std::memory_order_acquire);
      return job_of(state) != seen;
    };
    if (!spin(changed)) {
      while (!changed()) wait_while(state_, state);
    }
    if (stopping_) return;
    seen = job_of(state);
    // Joins the job unless it is closed.
    while ((state & kOpen) != 0 && job_of(state) == seen) {
      if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire,
                                       std::memory_order_acquire)) {
        work(thread);
        state_.fetch_sub(1, std::memory_order_release);
        break;
      }
    }
  }
}

}  // namespace forge::cpu
