#include "queue.h"

namespace fake_driver {

void StreamQueue::add(Work work) {
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
