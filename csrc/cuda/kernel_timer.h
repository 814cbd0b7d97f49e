#pragma once

#include <vector>

#include "../common/run_profile.h"
#include "plan_builder.h"

namespace forge::cuda {

// Times each entry of a run by events around it.
class KernelTimer {
 public:
  explicit KernelTimer(std::shared_ptr<DeviceState> state) : state_(std::move(state)) {}
  ~KernelTimer();
  KernelTimer(const KernelTimer&) = delete;
  KernelTimer& operator=(const KernelTimer&) = delete;

  // Begins a run, at `start` nanoseconds of its profile. Forgets the entries of a failed run.
  void begin_run(uint64_t start);
  // Called before and after entry i of the plan is enqueued.
  void begin();
  void end(size_t i);
  // Adds the times of the run. The stream must be idle.
  void finish_run(const LaunchPlan& plan, RunProfile& profile) const;

 private:
  struct Span {
    Event begin = nullptr, end = nullptr;
  };
  void record(Event event) const;

  std::shared_ptr<DeviceState> state_;
  std::vector<Span> spans_;    // reused in every run
  std::vector<size_t> timed_;  // entries of the current run
  uint64_t start_ = 0;
};

}  // namespace forge::cuda
