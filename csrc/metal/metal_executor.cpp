#include "metal_executor.h"

#include <algorithm>
#include <cstring>

#include "../gpu/memory_needs.h"
#include "weight_store.h"

namespace forge::metal {

namespace {

// Every value begins where any vector load may.
constexpr uint64_t kValueAlignment = 64;
// Memory that plans are built with only to see what they need.
const PlanMemory kNoMemory{};

constexpr const char* kRunning = "running the step";

}  // namespace

MetalExecutor::MetalExecutor(std::shared_ptr<const Program> program,
                             std::shared_ptr<MetalDevice> device)
    : program_(std::move(program)),
      device_(std::move(device)),
      values_(plan_scratch(*program_, kValueAlignment)) {
  const std::lock_guard lock(gpu().mutex());
  WeightStore weights(device_->device, device_->windows, device_->n_threads);
  request_weights(*program_, weights);
  weights.lay_out();
  std::vector<StepShape> shapes = typical_shapes(*program_);
  for (StepShape& shape : shapes) note_most_rows(shape);
  const uint64_t max_outputs = program_->samples ? program_->limits.max_outputs : 0;
  const uint64_t occurrences = max_outputs * program_->logits_cols * sizeof(uint32_t);
  const uint64_t results = max_outputs * result_stride();
  const WorkspaceBytes workspace = plan_typical(shapes);
  scratch_bytes = values_.elements * sizeof(float) + workspace.routes + workspace.scratch +
                  occurrences + results + RunInputs::device_bytes(*program_, shapes);
  const MemoryNeeds needs{weights.bytes(), missing_caches(*program_), scratch_bytes};
  require_memory(gpu().room(), needs);

  device_->kernels.load();
  weights.run();
  if (needs_codebooks(*program_)) memory_.codebooks = device_->codebooks();
  for (const DeviceKv* cache : needs.caches) cache->allocate();
  allocate(workspace, occurrences, results);
  inputs_ = std::make_unique<RunInputs>(device_->device, *program_, shapes);
}

WorkspaceBytes MetalExecutor::plan_typical(const std::vector<StepShape>& shapes) {
  WorkspaceBytes most;
  for (const StepShape& shape : shapes) {
    for (const bool greedy : {false, true}) {
      PlanBuilder builder(*program_, values_, kNoMemory, {shape, greedy}, {}, device_->kernels);
      builder.build();
      most.routes = std::max(most.routes, builder.workspace_bytes().routes);
      most.scratch = std::max(most.scratch, builder.workspace_bytes().scratch);
    }
  }
  return most;
}

void MetalExecutor::allocate(const WorkspaceBytes& workspace, uint64_t occurrences,
                             uint64_t results) {
  const auto take = [&](uint64_t bytes, Storage storage) {
    return Buffer(device_->device, bytes, Purpose::activations, storage);
  };
  arena_ = take(values_.elements * sizeof(float), Storage::gpu_only);
  routes_ = take(workspace.routes, Storage::gpu_only);
  scratch_ = take(workspace.scratch, Storage::gpu_only);
  occurrences_ = take(occurrences, Storage::gpu_only);
  results_ = take(results, Storage::shared);
  if (occurrences > 0) {
    Commands commands(gpu());
    commands.clear(occurrences_.at(), occurrences);
    commands.commit();
    commands.wait("clearing counts of tokens");
  }
  memory_.values = arena_.at();
  memory_.workspace = {routes_.at(), scratch_.at()};
  memory_.occurrences = occurrences_.at();
  memory_.results = results_.at();
}

// Sequences that share pages can see more positions together than there are pages for.
void MetalExecutor::grow_workspace(const WorkspaceBytes& needed) {
  plans_.clear();
  const auto grow = [&](Buffer& buffer, uint64_t bytes) {
    if (bytes <= buffer.bytes()) return;
    buffer = Buffer();
    buffer = Buffer(device_->device, bytes, Purpose::activations, Storage::gpu_only);
  };
  grow(routes_, needed.routes);
  grow(scratch_, needed.scratch);
  memory_.workspace = {routes_.at(), scratch_.at()};
}

const MetalExecutor::Plan& MetalExecutor::plan_for(const PlanShape& shape) {
  const auto known = plans_.find(shape);
  if (known != plans_.end()) {
    if (known->second.inputs_generation == inputs_->generation()) return known->second;
    plans_.erase(known);
  }
  const auto build = [&](WorkspaceBytes& needed) {
    PlanBuilder builder(*program_, values_, memory_, shape, inputs_->places(shape.step),
                        device_->kernels);
    LaunchPlan launches = builder.build();
    needed = builder.workspace_bytes();
    return launches;
  };
  WorkspaceBytes needed;
  LaunchPlan launches = build(needed);
  if (needed.routes > routes_.bytes() || needed.scratch > scratch_.bytes()) {
    grow_workspace(needed);
    launches = build(needed);
  }
  device_->kernels.load();
  for (const Launch& launch : launches.launches) launch.verify(gpu().properties());
  Plan plan{std::move(launches), inputs_->generation()};
  return plans_.emplace(shape, std::move(plan)).first->second;
}

void MetalExecutor::run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) {
  const std::lock_guard lock(gpu().mutex());
  stop.check();
  const QueryTiles tiles = query_tiles(inputs);
  const StepRows rows = step_rows(inputs);
  StepShape shape = shape_of(inputs, tiles, program_->limits);
  note_rows(rows, program_->limits, shape);
  inputs_->reserve(inputs, shape);
  const Plan& plan = plan_for({shape, is_greedy(inputs)});
  inputs_->write(inputs, tiles, rows, shape);
  execute(plan.launches, inputs);
  const uint64_t bytes = program_->samples ? inputs.n_outputs * result_stride() : 0;
  if (bytes > 0) std::memcpy(&results.header(0), results_.data(), bytes);
}

void MetalExecutor::execute(const LaunchPlan& plan, const StepInputs& inputs) {
  const std::span<const Launch> launches = plan.launches;
  const Place filler = device_->filler.at();
  Commands commands(gpu());
  if (inputs.masks.empty()) {
    commands.launch(launches, filler);
    commands.commit();
    commands.wait(kRunning);
    return;
  }
  // The caller computes the masks while the GPU computes the logits.
  commands.launch(launches.first(plan.sampling_begin), filler);
  commands.commit();
  inputs.masks_ready.wait();
  inputs_->write_masks(inputs);
  Commands sampling(gpu());
  sampling.launch(launches.subspan(plan.sampling_begin), filler);
  sampling.commit();
  commands.wait(kRunning);
  sampling.wait(kRunning);
}

void MetalExecutor::read(uint32_t value, uint64_t first_row, uint64_t n_rows, float* out) const {
  const std::lock_guard lock(gpu().mutex());
  const uint64_t cols = program_->value(value).cols;
  const uint64_t begin = values_.offsets[value - 1] + first_row * cols;
  const uint64_t bytes = n_rows * cols * sizeof(float);
  if (bytes == 0) return;
  const Buffer host(device_->device, bytes, Purpose::activations, Storage::shared);
  Commands commands(gpu());
  commands.copy(host.at(), arena_.at(begin * sizeof(float)), bytes);
  commands.commit();
  commands.wait("reading a value");
  std::memcpy(out, host.data(), bytes);
}

}  // namespace forge::metal
