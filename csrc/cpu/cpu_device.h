#pragma once

#include <mutex>

#include "kernel_table.h"
#include "thread_pool.h"

namespace forge::cpu {

// What the steps of one device share. The threads work for one step at a time: a run holds the
// mutex.
struct CpuDevice {
  CpuDevice(const KernelTable& chosen, uint32_t n_threads) : kernels(chosen), pool(n_threads) {}

  const KernelTable& kernels;
  ThreadPool pool;
  std::mutex run_mutex;
};

}  // namespace forge::cpu
