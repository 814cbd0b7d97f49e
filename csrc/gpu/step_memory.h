#pragma once

// The device memory that a step keeps for itself, beside weights and KV pages.

#include <algorithm>
#include <vector>

#include "../common/program.h"
#include "../common/scratch_plan.h"
#include "step_shape.h"

namespace forge {

// What single operations, or neighbours, hand from one of their launches to the next.
template <class Address>
struct Workspace {
  Address routes{};   // tokens grouped by expert, until the next routing
  Address scratch{};  // of one operation
};

struct WorkspaceBytes {
  uint64_t routes = 0;
  uint64_t scratch = 0;

  bool covers(const WorkspaceBytes& other) const {
    return routes >= other.routes && scratch >= other.scratch;
  }
  void grow_to(const WorkspaceBytes& other) {
    routes = std::max(routes, other.routes);
    scratch = std::max(scratch, other.scratch);
  }
};

// Where everything lies that launches read and write, as the device's launches take addresses.
template <class Address>
struct PlanMemory {
  Address values{};  // the arena of ScratchPlan
  Workspace<Address> workspace;
  Address codebooks{};    // of the weight types that look values up
  Address occurrences{};  // of tokens in histories, [max_outputs, vocabulary], all 0
  Address results{};      // the result block of the ABI
};

// The bytes of it all.
struct StepBytes {
  uint64_t values = 0;
  WorkspaceBytes workspace;
  uint64_t occurrences = 0;
  uint64_t results = 0;
  uint64_t inputs = 0;

  uint64_t total() const {
    return values + workspace.routes + workspace.scratch + occurrences + results + inputs;
  }
};

// For runs of the shapes, whose plans need the workspace.
StepBytes step_bytes(const Program& program, const ScratchPlan& values,
                     const WorkspaceBytes& workspace, const std::vector<StepShape>& shapes);

// Bytes of the results of so many outputs: none where the step does not sample.
uint64_t result_bytes(const Program& program, uint32_t n_outputs);

}  // namespace forge
