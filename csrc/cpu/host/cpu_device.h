#pragma once

#include <atomic>
#include <mutex>

#include "../kernel_table.h"
#include "thread_pool.h"

namespace forge::cpu {

// The kernels and threads of one device, shared by its steps. The threads work for one step at a
// time: a user of the threads holds the mutex.
struct CpuDevice {
  CpuDevice(const KernelTable& chosen, uint32_t n_threads) : kernels(chosen), pool(n_threads) {}

  // For callers that a user waits for.
  std::unique_lock<std::mutex> lock() {
    ++waiting_;
    std::unique_lock lock(mutex_);
    --waiting_;
    waiting_.notify_all();
    return lock;
  }

  // For background work: waits until no other caller waits.
  std::unique_lock<std::mutex> lock_after_others() {
    while (const uint32_t waiting = waiting_) waiting_.wait(waiting);
    return std::unique_lock(mutex_);
  }

  const KernelTable& kernels;
  ThreadPool pool;

 private:
  std::mutex mutex_;
  std::atomic<uint32_t> waiting_{0};
};

}  // namespace forge::cpu
