#pragma once

// Streams, events and graphs. Work that is put on a stream runs only when someone waits for it, so
// that a program which does not wait, or changes a pinned buffer too early, sees the difference.

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace fake_driver {

using Work = std::function<void()>;

struct GraphWork {
  std::vector<Work> nodes;
};

struct StreamQueue {
  std::deque<Work> pending;
  uint64_t queued = 0;     // pieces of work ever put on the stream
  uint64_t completed = 0;
  GraphWork* capture = nullptr;
  // Whether what was put there last is a kernel.
  bool ends_in_kernel = false;

  // Puts work on the stream, or into the graph that is being captured.
  void add(Work work, bool is_kernel = false);
  // Runs what is pending up to the n-th piece of work ever.
  void run_until(uint64_t n);
  void run_all() { run_until(queued); }
};

// Where its stream stood when it was recorded.
struct EventMark {
  StreamQueue* stream = nullptr;
  uint64_t position = 0;
};

}  // namespace fake_driver
