#pragma once

// Runs a program on a device: plans launches once for each shape of its inputs, and replays the
// plans of small steps as CUDA graphs.

#include <map>
#include <memory>

#include "cuda_device.h"
#include "plan_builder.h"
#include "profile.h"
#include "step_graph.h"

namespace forge::cuda {

class CudaExecutor : public Executable {
 public:
  // Brings everything that the program needs to the device. Throws FORGE_OUT_OF_MEMORY before
  // anything is allocated when it cannot fit.
  CudaExecutor(std::shared_ptr<const Program> program, std::shared_ptr<CudaDevice> device);

  void run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) override;
  void read(uint32_t value, uint64_t first_row, uint64_t n_rows, float* out) const override;

 private:
  struct Plan {
    LaunchPlan list;
    uint64_t inputs_generation;
    uint32_t max_tokens;
    uint32_t runs = 0;
    // Of the forward pass, and of the sampling, before which masks may arrive.
    std::unique_ptr<StepGraph> forward = nullptr, sampling = nullptr;
  };

  // Plans every typical shape, so that its kernels are known; what they need beside the values.
  WorkspaceBytes plan_typical(const std::vector<StepShape>& shapes);
  DeviceBuffer take(uint64_t bytes) const;
  void allocate(const StepBytes& bytes);
  void grow_workspace(const WorkspaceBytes& needed);
  Plan& plan_for(const StepShape& shape);
  // Plans a shape, in a workspace that has room for it.
  LaunchPlan build(const StepShape& shape);
  // Entries of a plan, and whether what is on the stream before them is a kernel.
  struct Section {
    size_t begin, end;
    bool follows_kernel;
  };
  // Puts a part of the plan on the stream, from its second run on as a graph where that pays.
  void enqueue(const Plan& plan, std::unique_ptr<StepGraph>& graph, const Section& section,
               const StopFlag& stop);
  void copy_results(const StepInputs& inputs, ResultBlock& results);

  std::shared_ptr<const Program> program_;
  std::shared_ptr<CudaDevice> device_;
  AttentionChoice attention_;
  TilingPolicy tiling_;
  ScratchPlan values_;
  DeviceBuffer arena_, routes_, scratch_, occurrences_, results_;
  PinnedBuffer results_host_;
  std::unique_ptr<DeviceInputs> inputs_;
  PlanMemory memory_;
  std::map<StepShape, Plan> plans_;
  std::unique_ptr<Profile> profile_;  // where one is asked for
};

}  // namespace forge::cuda
