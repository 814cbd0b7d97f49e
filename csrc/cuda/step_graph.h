#pragma once

#include "plan_builder.h"

namespace forge::cuda {

// Launches captured into a CUDA graph, which the driver replays in one call.
class StepGraph {
 public:
  // Captures launches[begin, end) on the device's stream; nothing runs.
  StepGraph(std::shared_ptr<DeviceState> state, const std::vector<Launch>& launches, size_t begin,
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
