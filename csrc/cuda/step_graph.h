#pragma once

#include "memory.h"
#include "plan_entry.h"

namespace forge::cuda {

// Entries of a plan captured in a CUDA graph, which the driver replays in one call.
class StepGraph {
 public:
  // Captures entries[begin, end) on the device's stream; nothing runs.
  StepGraph(std::shared_ptr<DeviceState> state, const std::vector<PlanEntry>& entries, size_t begin,
            size_t end);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  void replay() const;

 private:
  std::shared_ptr<DeviceState> state_;
  GraphExec executable_ = nullptr;
};

}  // namespace forge::cuda
