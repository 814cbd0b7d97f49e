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

// Times kSpin that a run waits for a node's own threads to take the node's share, and no others
// may; otherwise once.
constexpr int kPatience = 1000;

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

ThreadPool::ThreadPool(std::vector<NodeThreads> nodes)
    : nodes_(std::move(nodes)), shares_(new Share[nodes_.size()]) {
  uint32_t thread = 0;
  for (uint32_t node = 0; node < n_nodes(); ++node) {
    for (uint32_t i = 0; i < nodes_[node].n_threads; ++i, ++thread) {
      if (thread == 0) continue;  // the caller
      workers_.emplace_back([this, node, thread] {
        const PinnedThread pinned(nodes_[node].cpus);
        worker_loop(node, thread);
      });
    }
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  for (uint32_t node = 0; node < n_nodes(); ++node) {
    shares_[node].state += kJob;
    wake_all(shares_[node].state);
  }
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_job() {
  for (uint32_t node = 0; node < n_nodes(); ++node) {
    shares_[node].next.store(node == 0 ? 0 : shares_[node - 1].end, std::memory_order_relaxed);
  }
  // All shares are set before the first worker joins, as it may help other nodes.
  for (uint32_t node = 0; node < n_nodes(); ++node) {
    std::atomic<uint32_t>& state = shares_[node].state;
    state.store((job_of(state.load(std::memory_order_relaxed)) + 1) * kJob | kOpen,
                std::memory_order_seq_cst);
    wake_all(state);
  }
  work(0, 0);
  for (uint32_t node = 0; node < n_nodes(); ++node) {
    // Threads of the node may still be asleep.
    const auto all_taken = [&each = shares_[node]] {
      return each.next.load(std::memory_order_relaxed) >= each.end;
    };
    const int patience = helps_ ? 1 : kPatience;
    for (int i = 0; i < patience && !spin(all_taken); ++i) std::this_thread::yield();
    take(node, 0, 0);
    std::atomic<uint32_t>& state = shares_[node].state;
    state.fetch_and(~kOpen, std::memory_order_acq_rel);
    const auto all_left = [&state] {
      return (state.load(std::memory_order_acquire) & kWorkers) == 0;
    };
    // A busy worker may need this core.
    while (!spin(all_left)) std::this_thread::yield();
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::work(uint32_t home, uint32_t thread) noexcept {
  take(home, thread, 0);
  if (!helps_) return;
  for (uint32_t i = 1; i < n_nodes(); ++i) {
    const uint32_t node = (home + i) % n_nodes();
    take(node, thread, nodes_[node].n_threads);
  }
}

void ThreadPool::take(uint32_t from, uint32_t thread, uint32_t n_left) noexcept {
  Share& share = shares_[from];
  try {
    for (;;) {
      // Many threads may read a word at once; an increment takes it from all others.
      const uint32_t next = share.next.load(std::memory_order_relaxed);
      if (next >= share.end || share.end - next <= n_left) return;
      const uint32_t index = share.next.fetch_add(1, std::memory_order_relaxed);
      if (index >= share.end) return;
      call_(context_, index, thread);
    }
  } catch (...) {
    for (uint32_t node = 0; node < n_nodes(); ++node) {
      shares_[node].next.store(shares_[node].end, std::memory_order_relaxed);
    }
    const std::lock_guard lock(failure_mutex_);
    failure_ = std::current_exception();
  }
}

void ThreadPool::worker_loop(uint32_t node, uint32_t thread) {
  std::atomic<uint32_t>& shared = shares_[node].state;
  uint32_t seen = 0;
  for (;;) {
    uint32_t state = shared.load(std::memory_order_acquire);
    const auto changed = [&] {
      state = shared.load(std::memory_order_acquire);
      return job_of(state) != seen;
    };
    if (!spin(changed)) {
      while (!changed()) wait_while(shared, state);
    }
    if (stopping_) return;
    seen = job_of(state);
    // Joins the job unless it is closed.
    while ((state & kOpen) != 0 && job_of(state) == seen) {
      if (shared.compare_exchange_weak(state, state + 1, std::memory_order_acquire,
                                       std::memory_order_acquire)) {
        work(node, thread);
        shared.fetch_sub(1, std::memory_order_release);
        break;
      }
    }
  }
}

}  // namespace forge::cpu
