#pragma once

#include <functional>

#include "memory.h"

namespace forge::cuda {

// Launches captured in a CUDA graph, which the driver replays in one call.
class StepGraph {
 public:
  // Captures what `enqueue` puts on the device's stream; nothing runs.
  StepGraph(std::shared_ptr<DeviceState> state, const std::function<void()>& enqueue);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  void replay() const;

 private:
  std::shared_ptr<DeviceState> state_;
  GraphExec executable_ = nullptr;
};

}  // namespace forge::cuda
