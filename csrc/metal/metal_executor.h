#pragma once

// Runs a program on the GPU: plans launches once for each shape of its inputs, and records the plan
// of a run into one command buffer.

#include <map>
#include <memory>

#include "commands.h"
#include "metal_device.h"
#include "plan_builder.h"

namespace forge::metal {

class MetalExecutor : public Executable {
 public:
  // Brings everything that the program needs to the device, its kernels included. Throws
  // FORGE_OUT_OF_MEMORY before anything is allocated when it cannot fit.
  MetalExecutor(std::shared_ptr<const Program> program, std::shared_ptr<MetalDevice> device);

  void run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) override;
  void read(uint32_t value, uint64_t first_row, uint64_t n_rows, float* out) const override;

 private:
  struct Plan {
    LaunchPlan list;
    uint64_t inputs_generation;
  };

  const Device& gpu() const { return *device_->device; }
  // Plans every typical shape, so that its kernels are known; what they need beside the values.
  WorkspaceBytes plan_typical(const std::vector<StepShape>& shapes);
  Buffer take(uint64_t bytes, Storage storage) const;
  void allocate(const StepBytes& bytes);
  void grow_workspace(const WorkspaceBytes& needed);
  const Plan& plan_for(const PlanShape& shape);
  // Plans a shape, in a workspace that has room for it.
  LaunchPlan build(const PlanShape& shape);
  // Runs the plan; masks may still be on their way when it begins.
  void execute(const LaunchPlan& plan, const StepInputs& inputs);

  std::shared_ptr<const Program> program_;
  std::shared_ptr<MetalDevice> device_;
  const TilingPolicy tiling_;
  ScratchPlan values_;
  Buffer arena_, routes_, scratch_, occurrences_, results_;
  std::unique_ptr<DeviceInputs> inputs_;
  PlanMemory memory_;
  std::map<PlanShape, Plan> plans_;
};

}  // namespace forge::metal
