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
// Steps of a series in one graph. More would save less than a microsecond a step.
constexpr uint32_t kGraphSteps = 4;

// Returns the part of a run's shape that all devices of a group have in common: what a run samples,
// only one of them knows.
std::pair<uint32_t, uint32_t> exchanged(const StepShape& shape) {
  return {shape.tokens, shape.outputs};
}

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
  if (program_->samples) next_step_ = &device_->kernels.get("next_step.cu", "next_step");
  WeightStore weights(device_->handle(), device_->kernels, device_->n_threads);
  prepare(weights);
  device_->device().synchronize("preparing the step");
}

PlanBuilder CudaExecutor::builder(const PlanRequest& request, const StepShape&) {
  return PlanBuilder(request, *device_, attention_);
}

void CudaExecutor::name_kernels(const StepShape& shape, const LaunchPlan& plan) {
  if (uses_step_kernel(device_->device(), shape)) step_kernel_of(plan, *device_);
}

void CudaExecutor::finish(const StepShape& shape, Plan& plan) {
  plan.max_tokens = shape.tokens;
  for (const PlanEntry& entry : plan.list.entries) {
    if (const auto* launch = std::get_if<Launch>(&entry)) launch->verify(device_->device());
  }
  keep_blocks(shape, plan);
  if (device_->device().is_traced()) {
    std::fprintf(stderr, "%s\n", plan_summary(shape, plan.launched().entries).c_str());
  }
}

void CudaExecutor::keep_blocks(const StepShape& shape, Plan& plan) {
  const auto& gpu = device_->device();
  if (!uses_step_kernel(gpu, shape)) return;
  const Kernel* kernel = step_kernel_of(plan.list, *device_);
  if (!kernel) return;
  device_->kernels.load();
  plan.counters = device_->allocate(step_kernel_counters(plan.list) * sizeof(uint32_t));
  clear(plan.counters);
  plan.resident = with_step_kernel(plan.list, *kernel, gpu, plan.counters.at());
  if (!plan.resident) return;
  for (const PlanEntry& entry : plan.resident->entries) {
    if (const auto* launch = std::get_if<Launch>(&entry)) launch->verify(gpu);
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
            "clearing counters");
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
  const StopFlag stops = begin_run(work.shape, plan, stop);
  bool is_enqueued = false;
  try {
    inputs_->copy(inputs, work);
    // Profiles have the time of each launch.
    const LaunchPlan& list = profile ? plan.list : plan.launched();
    const size_t sampling = list.sampling_begin;
    enqueue(plan, list.entries, plan.forward, {0, sampling, false}, stops);
    is_enqueued = true;
    // The caller computes the masks during the forward pass.
    if (!inputs.masks.empty()) {
      inputs.masks_ready.wait();
      inputs_->copy_masks(inputs);
    }
    const bool follows_kernel = sampling > 0 && inputs.masks.empty();
    enqueue(plan, list.entries, plan.sampling, {sampling, list.entries.size(), follows_kernel},
            stops);
    copy_results(results_.at(), results_host_, result_bytes(*program_, inputs.n_outputs), results);
    if (profile) timer_->finish_run(plan.list, *profile);
  } catch (...) {
    fail_run(is_enqueued);
    throw;
  }
}

StopFlag CudaExecutor::begin_run(const StepShape& shape, Plan& plan, const StopFlag& stop) {
  const NcclLinks& links = device_->links;
  const bool is_shared = links.group && links.group->spans_processes();
  plan.is_captured = captures(plan, is_shared ? ++shared_runs_[exchanged(shape)] : ++plan.runs);
  if (!links.group) return stop;
  plan.is_captured = links.group->begin_run(links.device, plan.is_captured, stop);
  return StopFlag(nullptr);
}

void CudaExecutor::fail_run(bool is_enqueued) {
  const auto& gpu = device_->device();
  try {
    throw;
  } catch (const Error& error) {
    const bool leaves_others = is_enqueued && error.status() != FORGE_DEVICE_FAILED;
    if (device_->links.group && !leaves_others) device_->links.group->abort(error.what());
  } catch (...) {
    if (device_->links.group) device_->links.group->abort("out of memory");
  }
  // Work on the stream still reads the buffers that the next run fills.
  gpu.api().stream_synchronize(gpu.stream());
}

void CudaExecutor::enqueue(const Plan& plan, const std::vector<PlanEntry>& entries,
                           std::unique_ptr<StepGraph>& graph, const Section& section,
                           const StopFlag& stop) {
  const auto [begin, end, follows_kernel] = section;
  if (begin == end) return;
  const auto& gpu = device_->device();
  if (plan.is_captured) {
    if (!graph) {
      graph = std::make_unique<StepGraph>(device_->handle(), [&, begin = begin, end = end] {
        for (size_t i = begin; i < end; ++i) cuda::enqueue(entries[i], gpu, i > begin);
      });
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

// A plan that runs once is not worth a graph; profiles need single launches.
bool CudaExecutor::captures(const Plan& plan, uint64_t runs) const {
  return device_->device().captures_graphs() && !profile && runs > 1 &&
         plan.max_tokens <= kMostGraphTokens;
}

bool CudaExecutor::run_ahead(SeriesInputs& series, ResultBlock& results, const StopFlag& stop) {
  const auto& gpu = device_->device();
  const DeviceTurn turn(gpu);
  stop.check();
  const std::vector<StepWork> work = partition_series(series, program_->limits, tiling_);
  if (work.empty()) return false;
  const StepShape& shape = work[0].shape;
  const uint64_t bytes = series.n_steps() * result_bytes(*program_, series.at(0).n_outputs);
  inputs_->reserve_series(series, shape);
  if (series_results_.bytes() < bytes) {
    series_results_ = DeviceBuffer();
    series_results_ = device_->allocate(bytes);
    series_results_host_ = PinnedBuffer(device_->handle(), bytes);
  }
  Plan& plan = plan_for(shape);
  const StopFlag stops = begin_run(shape, plan, stop);
  bool is_enqueued = false;
  try {
    inputs_->copy_series(series, work);
    enqueue_series(plan, next_step<Launch>(*next_step_, shape, series_results_.at()),
                   series.n_steps(), stops);
    is_enqueued = true;
    copy_results(series_results_.at(), series_results_host_, bytes, results);
  } catch (...) {
    fail_run(is_enqueued);
    throw;
  }
  return true;
}

void CudaExecutor::enqueue_series(Plan& plan, const Launch& next, uint32_t n_steps,
                                  const StopFlag& stop) {
  const auto& gpu = device_->device();
  const std::vector<PlanEntry>& entries = plan.launched().entries;
  const auto enqueue_steps = [&](uint32_t n) {
    for (uint32_t step = 0; step < n; ++step) {
      for (size_t i = 0; i < entries.size(); ++i) cuda::enqueue(entries[i], gpu, step + i > 0);
      next.enqueue(gpu, true);
    }
  };
  if (plan.series_results != series_results_.at()) plan.series.clear();
  plan.series_results = series_results_.at();
  for (uint32_t done = 0, n; done < n_steps; done += n) {
    stop.check();
    n = plan.is_captured && n_steps - done >= kGraphSteps ? kGraphSteps : 1;
    if (!plan.is_captured) {
      enqueue_steps(n);
      continue;
    }
    const auto [graph, is_new] =
        plan.series.try_emplace(n, device_->handle(), [&] { enqueue_steps(n); });
    if (is_new && gpu.is_traced()) {
      std::fprintf(stderr, "series of %u tokens: %u steps a graph\n", plan.max_tokens, n);
    }
    graph->second.replay();
  }
}

void CudaExecutor::copy_results(DevicePointer from, const PinnedBuffer& through, uint64_t bytes,
                                ResultBlock& results) {
  const auto& gpu = device_->device();
  if (bytes > 0) {
    gpu.check(gpu.api().copy_to_host(through.data(), from, bytes, gpu.stream()),
              "copying results");
  }
  gpu.synchronize("running the step");
  if (bytes > 0) std::memcpy(&results.header(0), through.data(), bytes);
}

void CudaExecutor::read_memory(float* to, DevicePointer from, uint64_t bytes) const {
  const auto& gpu = device_->device();
  const DeviceTurn turn(gpu);
  gpu.check(gpu.api().copy_to_host(to, from, bytes, gpu.stream()), "reading a value");
  gpu.synchronize("reading a value");
}

}  // namespace forge::cuda
