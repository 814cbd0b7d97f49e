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
  CpuDevice(const KernelTable& chosen, const std::vector<NodeThreads>& nodes,
            std::shared_ptr<MemoryBound> bound = std::make_shared<MemoryBound>())
      : kernels(chosen), pool(nodes), memory(std::move(bound)) {}

  // The right to use the threads. The holder is one of them, on their first node.
  struct Lock {
    std::unique_lock<std::mutex> mutex;
    PinnedThread pinned;
  };

  // For callers that a user waits for.
  Lock lock() {
    ++waiting_;
    std::unique_lock lock(mutex_);
    --waiting_;
    wake_all(waiting_);
    return {std::move(lock), PinnedThread(pool.nodes().front().cpus)};
  }

  // For background work: waits until no other caller waits.
  Lock lock_after_others() {
    while (const uint32_t waiting = waiting_) wait_while(waiting_, waiting);
    return {std::unique_lock(mutex_), PinnedThread(pool.nodes().front().cpus)};
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
