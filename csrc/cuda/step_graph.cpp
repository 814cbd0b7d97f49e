#include "step_graph.h"

namespace forge::cuda {

StepGraph::StepGraph(std::shared_ptr<DeviceState> state, const std::function<void()>& enqueue)
    : state_(std::move(state)) {
  const Device& device = state_->device;
  const DriverApi& api = device.api();
  device.check(api.capture_begin(device.stream(), kCaptureThreadLocal), "cuStreamBeginCapture");
  Graph graph = nullptr;
  try {
    enqueue();
  } catch (...) {
    // The capture must end even on failure, or the stream stays unusable.
    api.capture_end(device.stream(), &graph);
    if (graph) api.graph_destroy(graph);
    throw;
  }
  device.check(api.capture_end(device.stream(), &graph), "cuStreamEndCapture");
  const Result result = api.graph_instantiate(&executable_, graph, 0);
  api.graph_destroy(graph);
  device.check(result, "cuGraphInstantiate");
}

StepGraph::~StepGraph() {
  const DeviceScope scope(state_->device);
  if (executable_) state_->device.api().graph_exec_destroy(executable_);
}

void StepGraph::replay() const {
  const Device& device = state_->device;
  device.check(device.api().graph_launch(executable_, device.stream()), "cuGraphLaunch");
}

}  // namespace forge::cuda
