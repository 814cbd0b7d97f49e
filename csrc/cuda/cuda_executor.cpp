#include "cuda_executor.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "weight_store.h"

namespace forge::cuda {

namespace {

// Grids have a block along y for each row.
constexpr uint32_t kMostTokens = kMostGridRows;
// Steps up to this size are shorter than the time to enqueue their launches one by one.
constexpr uint32_t kMostGraphTokens = 64;
// Launches between two checks of the stop flag.
constexpr size_t kStopInterval = 16;

}  // namespace

CudaExecutor::CudaExecutor(std::shared_ptr<const Program> program,
                           std::shared_ptr<CudaDevice> device)
    : CudaExecutor(program, device,
                   AttentionChoice(device->attention, device->flash(),
                                   device->device().properties().multiprocessors)) {}

CudaExecutor::CudaExecutor(std::shared_ptr<const Program> program,
                           std::shared_ptr<CudaDevice> device, const AttentionChoice& attention)
    : StepExecutor(program, std::move(device), attention.policy(*program)),
      attention_(attention) {
  const StepLimits& limits = program_->limits;
  require(limits.max_tokens <= kMostTokens, "a step of ", limits.max_tokens,
          " tokens; the CUDA device takes up to ", kMostTokens);
  const DeviceTurn turn(device_->device());
  WeightStore weights(device_->handle(), device_->kernels, device_->n_threads);
  prepare(weights);
  device_->device().synchronize("preparing the step");
}

PlanBuilder CudaExecutor::builder(const PlanRequest& request, const StepShape&) {
  return PlanBuilder(request, *device_, attention_);
}

void CudaExecutor::finish(const StepShape& shape, Plan& plan) {
  plan.max_tokens = shape.tokens;
  for (const PlanEntry& entry : plan.list.entries) {
    if (const auto* launch = std::get_if<Launch>(&entry)) launch->verify(device_->device());
  }
  if (device_->device().is_traced()) {
    std::fprintf(stderr, "%s\n", plan_summary(shape, plan.list.entries).c_str());
  }
}

DevicePointer CudaExecutor::allocate_results(uint64_t bytes) {
  results_ = device_->allocate(bytes);
  if (bytes > 0) results_host_ = PinnedBuffer(device_->handle(), bytes);
  return results_.at();
}

void CudaExecutor::clear(const DeviceBuffer& buffer) {
  const auto& gpu = device_->device();
  gpu.check(gpu.api().fill_bytes(buffer.at(), 0, buffer.bytes(), gpu.stream()),
            "clearing counts of tokens");
}

void CudaExecutor::run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) {
  const auto& gpu = device_->device();
  const DeviceTurn turn(gpu);
  stop.check();
  const StepWork work = partition_rows(inputs, program_->limits, tiling_);
  inputs_->reserve(inputs, work.shape);
  Plan& plan = plan_for(work.shape);
  if (profile && !timer_) timer_ = std::make_unique<KernelTimer>(device_->handle());
  if (profile) timer_->begin_run(profile->now());
  try {
    inputs_->copy(inputs, work);
    ++plan.runs;
    const LaunchPlan& list = plan.list;
    enqueue(plan, plan.forward, {0, list.sampling_begin, false}, stop);
    // The caller computes the masks during the forward pass.
    if (!inputs.masks.empty()) {
      inputs.masks_ready.wait();
      inputs_->copy_masks(inputs);
    }
    const bool follows_kernel = list.sampling_begin > 0 && inputs.masks.empty();
    enqueue(plan, plan.sampling, {list.sampling_begin, list.entries.size(), follows_kernel}, stop);
    copy_results(inputs, results);
    if (profile) timer_->finish_run(list, *profile);
  } catch (...) {
    // Work on the stream still reads the buffers that the next run fills.
    gpu.api().stream_synchronize(gpu.stream());
    throw;
  }
}

void CudaExecutor::enqueue(const Plan& plan, std::unique_ptr<StepGraph>& graph,
                           const Section& section, const StopFlag& stop) {
  const auto [begin, end, follows_kernel] = section;
  if (begin == end) return;
  const std::vector<PlanEntry>& entries = plan.list.entries;
  const auto& gpu = device_->device();
  // A plan that runs once is not worth a graph; profiles need single launches.
  const bool is_captured = gpu.captures_graphs() && !profile;
  if (plan.runs > 1 && plan.max_tokens <= kMostGraphTokens && is_captured) {
    if (!graph) {
      graph = std::make_unique<StepGraph>(device_->handle(), entries, begin, end);
      if (gpu.is_traced()) {
        std::fprintf(stderr, "graph for %u tokens: %zu launches\n", plan.max_tokens, end - begin);
      }
    }
    graph->replay();
    return;
  }
  for (size_t i = begin; i < end; ++i) {
    if (i % kStopInterval == 0) stop.check();
    if (profile) timer_->begin();
    // Profiled launches are bracketed by events.
    cuda::enqueue(entries[i], gpu, (i > begin || follows_kernel) && !profile);
    if (profile) timer_->end(i);
  }
}

void CudaExecutor::copy_results(const StepInputs& inputs, ResultBlock& results) {
  const auto& gpu = device_->device();
  const uint64_t bytes = result_bytes(*program_, inputs.n_outputs);
  if (bytes > 0) {
    gpu.check(gpu.api().copy_to_host(results_host_.data(), results_.at(), bytes, gpu.stream()),
              "copying results");
  }
  gpu.synchronize("running the step");
  if (bytes > 0) std::memcpy(&results.header(0), results_host_.data(), bytes);
}

void CudaExecutor::read_memory(float* to, DevicePointer from, uint64_t bytes) const {
  const auto& gpu = device_->device();
  const DeviceTurn turn(gpu);
  gpu.check(gpu.api().copy_to_host(to, from, bytes, gpu.stream()), "reading a value");
  gpu.synchronize("reading a value");
}

}  // namespace forge::cuda
