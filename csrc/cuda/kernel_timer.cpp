#include "kernel_timer.h"

namespace forge::cuda {

KernelTimer::~KernelTimer() {
  const DeviceScope scope(state_->device);
  const DriverApi& api = state_->device.api();
  for (const Span& span : spans_) {
    if (span.begin) api.event_destroy(span.begin);
    if (span.end) api.event_destroy(span.end);
  }
}

void KernelTimer::begin_run(uint64_t start) {
  timed_.clear();
  start_ = start;
}

void KernelTimer::begin() {
  const Device& device = state_->device;
  if (timed_.size() == spans_.size()) {
    Span& span = spans_.emplace_back();
    device.check(device.api().event_create(&span.begin, 0), "cuEventCreate");
    device.check(device.api().event_create(&span.end, 0), "cuEventCreate");
  }
  record(spans_[timed_.size()].begin);
}

void KernelTimer::end(size_t i) {
  record(spans_[timed_.size()].end);
  timed_.push_back(i);
}

void KernelTimer::record(Event event) const {
  const Device& device = state_->device;
  device.check(device.api().event_record(event, device.stream()), "cuEventRecord");
}

void KernelTimer::finish_run(const LaunchPlan& plan, RunProfile& profile) const {
  const Device& device = state_->device;
  const auto nanoseconds = [&](Event from, Event to) {
    float milliseconds = 0;
    device.check(device.api().event_elapsed(&milliseconds, from, to), "cuEventElapsedTime");
    return static_cast<uint64_t>(1e6 * static_cast<double>(milliseconds));
  };
  for (size_t i = 0; i < timed_.size(); ++i) {
    const size_t entry = timed_[i];
    const uint64_t begin = start_ + nanoseconds(spans_[0].begin, spans_[i].begin);
    profile.add(plan.operations[entry], begin, nanoseconds(spans_[i].begin, spans_[i].end),
                std::visit([](const auto& work) { return std::string(work.name()); },
                           plan.entries[entry]));
  }
}

}  // namespace forge::cuda
