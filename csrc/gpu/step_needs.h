#pragma once

// Needs of a program on a device before it can run: weights in the forms that kernels read, its
// caches, and the buffers of its steps.

#include <algorithm>
#include <set>
#include <vector>

#include "../common/program.h"
#include "../common/scratch_plan.h"
#include "device_caches.h"
#include "step_work.h"

namespace forge {

// Collects the weights of a step, then brings them to the device. Skips null weights and those that
// the device has.
class WeightRequests {
 public:
  virtual ~WeightRequests() = default;
  // For products: every row in its own type.
  virtual void add_matrix(const WeightRef& weight) = 0;
  // For kernels that read one type: F32 if the parts differ.
  virtual void add_unified(const WeightRef& weight) = 0;
  // Floats without padding: norms, biases, frequencies.
  virtual void add_floats(const WeightRef& weight) = 0;

  // Chooses the layout of the requested weights, on which plans depend.
  virtual void lay_out() {}
  // Device memory that `run` takes.
  virtual uint64_t bytes() const = 0;
  // Brings the requested weights to the device.
  virtual void run() = 0;
};

// Requests the weights of each operation in the form that its kernels read.
void request_weights(const Program& program, WeightRequests& requests);

// True if kernels dequantise a weight whose type looks its values up (weight_format.h).
bool needs_codebooks(const Program& program);

// The caches of a program that have no memory yet.
struct MissingCaches {
  std::set<const DeviceKv*> kv;
  std::set<const DeviceStateCache*> states;

  void allocate() const;
};
MissingCaches missing_caches(const Program& program);

// Bytes that operations pass from one launch to the next.
struct WorkspaceBytes {
  uint64_t routes = 0;   // tokens sorted by expert, valid until the next routing
  uint64_t scratch = 0;  // of one operation
  uint64_t arrivals = 0;  // counters of finished blocks, all 0 between launches

  bool covers(const WorkspaceBytes& other) const {
    return routes >= other.routes && scratch >= other.scratch && arrivals >= other.arrivals;
  }
  void grow_to(const WorkspaceBytes& other) {
    routes = std::max(routes, other.routes);
    scratch = std::max(scratch, other.scratch);
    arrivals = std::max(arrivals, other.arrivals);
  }
};

// Bytes of the buffers of a step.
struct StepBytes {
  uint64_t values = 0;  // the arena of ScratchPlan
  WorkspaceBytes workspace;
  uint64_t results = 0;  // the result block of the ABI
  uint64_t inputs = 0;

  uint64_t total() const {
    return values + workspace.routes + workspace.scratch + workspace.arrivals + results + inputs;
  }
};

// Bytes of the buffers for runs of the shapes, whose plans need the workspace.
StepBytes step_bytes(const Program& program, const ScratchPlan& values,
                     const WorkspaceBytes& workspace, const std::vector<StepShape>& shapes);

// Device memory to allocate for a step with its weights and missing caches.
MemoryNeeds memory_needs(uint64_t weight_bytes, const MissingCaches& caches,
                         const StepBytes& bytes);

// Bytes of the results of `n_outputs` outputs; 0 if the step does not sample.
uint64_t result_bytes(const Program& program, uint32_t n_outputs);

}  // namespace forge
