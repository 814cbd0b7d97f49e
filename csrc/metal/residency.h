#pragma once

// Keeps the buffers of a device in memory that the GPU can access. Otherwise macOS takes the pages
// of an idle program away from the GPU, and the next step maps gigabytes of weights again:
// llama.cpp measured 320 ms instead of 63 ms for a token after a second of idleness.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "object.h"

namespace forge::metal {

class Residency {
 public:
  // For the buffers that a queue's work uses. Does nothing before macOS 15, which lacks residency
  // sets.
  Residency(void* device, void* queue);
  ~Residency();
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  void add(void* buffer);
  // Must precede the release of the buffer.
  void remove(void* buffer);
  // Requests residency when work is committed, and regularly for some minutes afterwards.
  void note_use();

 private:
  using Clock = std::chrono::steady_clock;
  void repeat_requests();

  Object set_;  // an MTLResidencySet; empty before macOS 15
  std::mutex mutex_;
  std::condition_variable wake_;
  bool has_changes_ = false, is_ending_ = false;
  Clock::time_point last_use_;
  std::thread thread_;
};

}  // namespace forge::metal
