#pragma once

// Runs a program on the GPU: records the plan of a run into a few command buffers.

#include <memory>
#include <vector>

#include "../gpu/step_executor.h"
#include "commands.h"
#include "metal_device.h"
#include "plan_builder.h"

namespace forge::metal {

// The types of gpu/step_executor.h.
struct MetalSteps {
  using Device = MetalDevice;
  using Address = Place;
  using Buffer = metal::Buffer;
  using InputArea = metal::InputArea;
  using Builder = PlanBuilder;
  using Entry = Launch;
  using Shape = PlanShape;
  using Plan = CachedPlan<Launch>;
};

class MetalExecutor : public StepExecutor<MetalSteps> {
 public:
  MetalExecutor(std::shared_ptr<const Program> program, std::shared_ptr<MetalDevice> device);

  void run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) override;
  bool run_ahead(SeriesInputs& series, ResultBlock& results, const StopFlag& stop) override;

 private:
  const metal::Device& gpu() const { return *device_->device; }

  std::vector<PlanShape> plan_shapes(const StepShape& shape) const override;
  PlanBuilder builder(const PlanRequest& request, const PlanShape& shape) override;
  void finish(const PlanShape& shape, Plan& plan) override;
  Place allocate_results(uint64_t bytes) override;
  void clear(const metal::Buffer& buffer) override;
  void read_memory(float* to, Place from, uint64_t bytes) const override;

  // Runs the plan. Masks may arrive after it has begun.
  void execute(const LaunchPlan& plan, const StepInputs& inputs, size_t launches_each);
  // Waits for the masks of the caller, and copies them.
  void receive_masks(const StepInputs& inputs);
  // Runs each launch in a command buffer of its own, and adds its time to the profile.
  void execute_timed(const LaunchPlan& plan, const StepInputs& inputs);

  metal::Buffer results_;
  const Kernel* next_step_ = nullptr;  // of programs that sample
  metal::Buffer series_results_;       // of all steps of a series
};

}  // namespace forge::metal
