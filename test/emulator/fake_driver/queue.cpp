#include "queue.h"

namespace fake_driver {

void StreamQueue::add(Work work, bool is_kernel) {
  ends_in_kernel = is_kernel;
  if (capture) {
    capture->nodes.push_back(std::move(work));
    return;
  }
  pending.push_back(std::move(work));
  ++queued;
}

void StreamQueue::run_until(uint64_t n) {
  while (completed < n && !pending.empty()) {
    const Work work = std::move(pending.front());
    pending.pop_front();
    ++completed;
    work();
  }
}

}  // namespace fake_driver
