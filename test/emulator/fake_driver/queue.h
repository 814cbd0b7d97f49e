#pragma once

// Streams, events and graphs. Work on a stream runs only when someone waits for it, so that a
// program which does not wait, or changes a pinned buffer too early, gets wrong results.

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
  uint64_t queued = 0;     // total pieces of work put on the stream
  uint64_t completed = 0;
  GraphWork* capture = nullptr;
  // True if the last piece of work is a kernel.
  bool ends_in_kernel = false;

  // Puts work on the stream, or into the graph under capture.
  void add(Work work, bool is_kernel = false);
  // Runs pending work up to the n-th piece in total.
  void run_until(uint64_t n);
  void run_all() { run_until(queued); }
};

// Position of its stream when the event was recorded.
struct EventMark {
  StreamQueue* stream = nullptr;
  uint64_t position = 0;
};

}  // namespace fake_driver
