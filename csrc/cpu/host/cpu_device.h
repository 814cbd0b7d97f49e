#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "../../common/backend.h"
#include "../kernel_table.h"
#include "thread_pool.h"

namespace forge::cpu {

// The bytes that weights, caches and workspaces of a device may take, and take.
class MemoryBound : public std::enable_shared_from_this<MemoryBound> {
 public:
  void set(uint64_t most) { most_ = most; }
  uint64_t left() const {
    const uint64_t most = most_, taken = taken_;
    return most > taken ? most - taken : 0;
  }
  // Counts bytes as taken for as long as the result lives, whether they are left or not.
  std::shared_ptr<const void> take(uint64_t bytes) {
    taken_ += bytes;
    return {this, [self = shared_from_this(), bytes](const void*) { self->taken_ -= bytes; }};
  }

 private:
  std::atomic<uint64_t> most_{UINT64_MAX};
  std::atomic<uint64_t> taken_{0};
};

// The kernels and threads of one device, shared by its steps. The threads work for one step at a
// time: a user of the threads holds the mutex.
struct CpuDevice {
  CpuDevice(const KernelTable& chosen, uint32_t n_threads,
            std::shared_ptr<MemoryBound> bound = std::make_shared<MemoryBound>())
      : kernels(chosen), pool(n_threads), memory(std::move(bound)) {}

  // For callers that a user waits for.
  std::unique_lock<std::mutex> lock() {
    ++waiting_;
    std::unique_lock lock(mutex_);
    --waiting_;
    wake_all(waiting_);
    return lock;
  }

  // For background work: waits until no other caller waits.
  std::unique_lock<std::mutex> lock_after_others() {
    while (const uint32_t waiting = waiting_) wait_while(waiting_, waiting);
    return std::unique_lock(mutex_);
  }

  const KernelTable& kernels;
  ThreadPool pool;
  const std::shared_ptr<MemoryBound> memory;
  StreamedBytes streamed;  // changed by holders of the mutex

 private:
  std::mutex mutex_;
  std::atomic<uint32_t> waiting_{0};
};

}  // namespace forge::cpu
