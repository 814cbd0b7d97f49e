#pragma once

// Runs a program on a CUDA device, and replays the plans of small steps as CUDA graphs.

#include <map>
#include <memory>
#include <vector>

#include "../gpu/step_executor.h"
#include "cuda_device.h"
#include "plan_builder.h"
#include "kernel_timer.h"
#include "step_graph.h"
#include "step_kernel.h"

namespace forge::cuda {

// The types of gpu/step_executor.h.
struct CudaSteps {
  using Device = CudaDevice;
  using Address = DevicePointer;
  using Buffer = DeviceBuffer;
  using InputArea = cuda::InputArea;
  using Builder = PlanBuilder;
  using Entry = PlanEntry;
  using Shape = StepShape;
  struct Plan : CachedPlan<PlanEntry> {
    uint32_t max_tokens = 0;
    uint32_t runs = 0;
    bool is_captured = false;  // in the current run
    // Of the forward pass and of the sampling; masks may arrive in between.
    std::unique_ptr<StepGraph> forward, sampling;
    // Of steps of a series, by their number, and where they store all results.
    std::map<uint32_t, StepGraph> series;
    DevicePointer series_results = 0;
    // The list with step_kernel, if the shape uses it, and its counters.
    std::optional<LaunchPlan> resident;
    DeviceBuffer counters;

    // The list that runs which are not profiled enqueue.
    const LaunchPlan& launched() const { return resident ? *resident : list; }
  };
};

class CudaExecutor : public StepExecutor<CudaSteps> {
 public:
  CudaExecutor(std::shared_ptr<const Program> program, std::shared_ptr<CudaDevice> device);

  void run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) override;
  bool run_ahead(SeriesInputs& series, ResultBlock& results, const StopFlag& stop) override;

 private:
  CudaExecutor(std::shared_ptr<const Program> program, std::shared_ptr<CudaDevice> device,
               const AttentionChoice& attention);

  std::vector<StepShape> plan_shapes(const StepShape& shape) const override { return {shape}; }
  PlanBuilder builder(const PlanRequest& request, const StepShape& shape) override;
  void name_kernels(const StepShape& shape, const LaunchPlan& plan) override;
  void finish(const StepShape& shape, Plan& plan) override;
  // Plans step_kernel for a plan whose shape uses it.
  void keep_blocks(const StepShape& shape, Plan& plan);
  DevicePointer allocate_results(uint64_t bytes) override;
  void clear(const DeviceBuffer& buffer) override;
  void read_memory(float* to, DevicePointer from, uint64_t bytes) const override;

  // Entries of a plan.
  struct Section {
    size_t begin, end;
    bool follows_kernel;  // true if the work before them on the stream is a kernel
  };
  // Enqueues a section of the plan: from the second run on as a graph if that is faster.
  void enqueue(const Plan& plan, const std::vector<PlanEntry>& entries,
               std::unique_ptr<StepGraph>& graph, const Section& section, const StopFlag& stop);
  // `runs`: those of the plan, this one included.
  bool captures(const Plan& plan, uint64_t runs) const;
  // Begins a run of a plan, on all devices of the group at once. Returns the flag that stops it:
  // none in a group, of which no device may stop while others wait for its values.
  StopFlag begin_run(const StepShape& shape, Plan& plan, const StopFlag& stop);
  // Ends a run that failed. `is_enqueued`: its exchanges are on the stream, so that other devices
  // need not wait.
  void fail_run(bool is_enqueued);
  // Enqueues all steps of a series, several of them as one graph.
  void enqueue_series(Plan& plan, const Launch& next, uint32_t n_steps, const StopFlag& stop);
  // Waits for the results, which are at `from`.
  void copy_results(DevicePointer from, const PinnedBuffer& through, uint64_t bytes,
                    ResultBlock& results);

  AttentionChoice attention_;
  DeviceBuffer results_;
  PinnedBuffer results_host_;
  const Kernel* next_step_ = nullptr;  // of programs that sample
  DeviceBuffer series_results_;        // of all steps of a series
  PinnedBuffer series_results_host_;
  // Of a group of several processes: the runs by what all its devices know of their shapes, so that
  // all capture the same ones without asking each other.
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> shared_runs_;
  std::unique_ptr<KernelTimer> timer_;  // made by the first run that is profiled
};

}  // namespace forge::cuda
