#include "metal_executor.h"

#include <algorithm>
#include <cstring>

#include "../common/run_profile.h"
#include "transfers.h"
#include "weight_store.h"

namespace forge::metal {

namespace {

constexpr const char* kRunning = "running the step";

// Launches of a command buffer. Up to as many tokens as matvec takes together, a step is short:
// after the first command buffer the rest is one. A chunk of a prompt of a large model takes an M1
// seconds, and a product of it tens of milliseconds.
constexpr size_t kLongLaunches = 32;
size_t launches_of(const StepShape& shape) {
  return shape.tokens <= metal_args::kMostMatvecTokens ? SIZE_MAX : kLongLaunches;
}

bool has_splits(const StepWork& work) {
  return std::ranges::any_of(work.tiles.work,
                             [](const AttentionWork& entry) { return entry.n_splits > 1; });
}

}  // namespace

MetalExecutor::MetalExecutor(std::shared_ptr<const Program> program,
                             std::shared_ptr<MetalDevice> device)
    : StepExecutor(program, std::move(device), {.sees_ahead = !program->is_causal,
                    .lists_slots = program->n_slots > 0}) {
  const std::lock_guard lock(gpu().mutex());
  if (program_->samples) next_step_ = &device_->kernels.get("next_step", "next_step");
  WeightStore weights(device_->device, device_->windows, device_->n_threads);
  prepare(weights);
}

std::vector<PlanShape> MetalExecutor::plan_shapes(const StepShape& shape) const {
  return {{{shape}, false}, {{shape}, true}};
}

PlanBuilder MetalExecutor::builder(const PlanRequest& request, const PlanShape& shape) {
  return PlanBuilder(request, shape, *device_);
}

void MetalExecutor::finish(const PlanShape&, Plan& plan) {
  for (const Launch& launch : plan.list.entries) launch.verify(gpu().properties());
}

Place MetalExecutor::allocate_results(uint64_t bytes) {
  results_ = metal::Buffer(device_->device, bytes, Purpose::activations, Storage::shared);
  return results_.at();
}

void MetalExecutor::clear(const metal::Buffer& buffer) {
  fill_with_zeros(gpu(), buffer, "clearing counts of tokens");
}

void MetalExecutor::run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) {
  const std::lock_guard lock(gpu().mutex());
  stop.check();
  const StepWork work = partition_rows(inputs, program_->limits, tiling_);
  inputs_->reserve(inputs, work.shape);
  const Plan& plan = plan_for({{work.shape}, is_greedy(inputs), has_splits(work)});
  inputs_->copy(inputs, work);
  if (profile) {
    execute_timed(plan.list, inputs);
  } else {
    execute(plan.list, inputs, launches_of(work.shape));
  }
  const uint64_t bytes = result_bytes(*program_, inputs.n_outputs);
  if (bytes > 0) std::memcpy(&results.header(0), results_.data(), bytes);
}

bool MetalExecutor::run_ahead(SeriesInputs& series, ResultBlock& results, const StopFlag& stop) {
  const std::lock_guard lock(gpu().mutex());
  stop.check();
  const std::vector<StepWork> work = partition_series(series, program_->limits, tiling_);
  if (work.empty()) return false;
  const StepShape& shape = work[0].shape;
  const StepInputs& first = series.at(0);
  const bool greedy = is_greedy(first);
  const uint64_t bytes = series.n_steps() * result_bytes(*program_, first.n_outputs);
  inputs_->reserve_series(series, shape);
  if (series_results_.bytes() < bytes) {
    series_results_ = metal::Buffer();
    series_results_ = metal::Buffer(device_->device, bytes, Purpose::activations, Storage::shared);
  }
  const Plan& plan = plan_for({{shape}, greedy, std::ranges::any_of(work, has_splits)});
  const Launch next = next_step<Launch>(*next_step_, shape, series_results_.at());
  inputs_->copy_series(series, work);
  CommandSeries commands(gpu(), launches_of(shape));
  for (uint32_t step = 0; step < series.n_steps(); ++step) {
    stop.check();
    commands.launch(plan.list.entries, device_->filler.at());
    commands.launch({&next, 1}, device_->filler.at());
    commands.commit();
  }
  commands.wait(kRunning);
  if (bytes > 0) std::memcpy(&results.header(0), series_results_.data(), bytes);
  return true;
}

void MetalExecutor::execute(const LaunchPlan& plan, const StepInputs& inputs,
                            size_t launches_each) {
  const std::span<const Launch> launches = plan.entries;
  const Place filler = device_->filler.at();
  CommandSeries commands(gpu(), launches_each);
  commands.launch(launches.first(plan.sampling_begin), filler);
  if (!inputs.masks.empty()) {
    // The caller computes the masks during the forward pass.
    commands.commit();
    receive_masks(inputs);
  }
  commands.launch(launches.subspan(plan.sampling_begin), filler);
  commands.commit();
  commands.wait(kRunning);
}

void MetalExecutor::receive_masks(const StepInputs& inputs) {
  inputs.masks_ready.wait();
  inputs_->copy_masks(inputs);
}

void MetalExecutor::execute_timed(const LaunchPlan& plan, const StepInputs& inputs) {
  if (!inputs.masks.empty()) receive_masks(inputs);
  for (size_t i = 0; i < plan.entries.size(); ++i) {
    const uint64_t begin = profile->now();
    Commands commands(gpu());
    commands.launch({&plan.entries[i], 1}, device_->filler.at());
    commands.commit();
    commands.wait(kRunning);
    profile->add(plan.operations[i], begin,
                 static_cast<uint64_t>(1e9 * commands.gpu_seconds()),
                 plan.entries[i].kernel().name);
  }
}

void MetalExecutor::read_memory(float* to, Place from, uint64_t bytes) const {
  const std::lock_guard lock(gpu().mutex());
  read_from_gpu(device_->device, to, from, bytes, "reading a value");
}

}  // namespace forge::metal
