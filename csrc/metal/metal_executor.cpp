#include "metal_executor.h"

#include <cstring>

#include "../gpu/memory_needs.h"
#include "transfers.h"
#include "weight_store.h"

namespace forge::metal {

namespace {

// Every value begins where any vector load may.
constexpr uint64_t kValueAlignment = 64;
constexpr const char* kRunning = "running the step";

}  // namespace

MetalExecutor::MetalExecutor(std::shared_ptr<const Program> program,
                             std::shared_ptr<MetalDevice> device)
    : program_(std::move(program)),
      device_(std::move(device)),
      tiling_{.lists_slots = program_->n_slots > 0},
      values_(plan_scratch(*program_, kValueAlignment)) {
  const std::lock_guard lock(gpu().mutex());
  WeightStore weights(device_->device, device_->windows, device_->n_threads);
  request_weights(*program_, weights);
  weights.lay_out();
  const std::vector<StepShape> shapes = typical_shapes(*program_, tiling_);
  const StepBytes bytes = step_bytes(*program_, values_, plan_typical(shapes), shapes);
  scratch_bytes = bytes.total();
  const MemoryNeeds needs{weights.bytes(), missing_caches(*program_), missing_states(*program_),
                          scratch_bytes};
  require_memory(gpu().room(), needs);

  device_->kernels.load();
  weights.run();
  if (needs_codebooks(*program_)) memory_.codebooks = device_->codebooks();
  for (const DeviceKv* cache : needs.caches) cache->allocate();
  for (const DeviceSlots* state : needs.states) state->allocate();
  allocate(bytes);
  inputs_ = std::make_unique<DeviceInputs>(device_->device, *program_, shapes);
}

WorkspaceBytes MetalExecutor::plan_typical(const std::vector<StepShape>& shapes) {
  WorkspaceBytes most;
  for (const StepShape& shape : shapes) {
    for (const bool greedy : {false, true}) {
      PlanBuilder builder({*program_, values_, {}, shape, {}}, greedy, *device_);
      builder.build();
      most.grow_to(builder.workspace_bytes());
    }
  }
  return most;
}

Buffer MetalExecutor::take(uint64_t bytes, Storage storage) const {
  return Buffer(device_->device, bytes, Purpose::activations, storage);
}

void MetalExecutor::allocate(const StepBytes& bytes) {
  arena_ = take(bytes.values, Storage::gpu_only);
  routes_ = take(bytes.workspace.routes, Storage::gpu_only);
  scratch_ = take(bytes.workspace.scratch, Storage::gpu_only);
  occurrences_ = take(bytes.occurrences, Storage::gpu_only);
  results_ = take(bytes.results, Storage::shared);
  if (bytes.occurrences > 0) fill_with_zeros(gpu(), occurrences_, "clearing counts of tokens");
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
    buffer = take(bytes, Storage::gpu_only);
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
  Plan plan{.list = build(shape), .inputs_generation = inputs_->generation()};
  device_->kernels.load();
  for (const Launch& launch : plan.list.entries) launch.verify(gpu().properties());
  return plans_.emplace(shape, std::move(plan)).first->second;
}

LaunchPlan MetalExecutor::build(const PlanShape& shape) {
  for (;;) {
    PlanBuilder builder({*program_, values_, memory_, shape.step, inputs_->addresses(shape.step)},
                        shape.greedy, *device_);
    LaunchPlan plan = builder.build();
    const WorkspaceBytes& needed = builder.workspace_bytes();
    if (WorkspaceBytes{routes_.bytes(), scratch_.bytes()}.covers(needed)) return plan;
    grow_workspace(needed);
  }
}

void MetalExecutor::run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) {
  const std::lock_guard lock(gpu().mutex());
  stop.check();
  const RunWork work = deal_out(inputs, program_->limits, tiling_);
  inputs_->reserve(inputs, work.shape);
  const Plan& plan = plan_for({work.shape, is_greedy(inputs)});
  inputs_->write(inputs, work);
  execute(plan.list, inputs);
  const uint64_t bytes = result_bytes(*program_, inputs.n_outputs);
  if (bytes > 0) std::memcpy(&results.header(0), results_.data(), bytes);
}

void MetalExecutor::execute(const LaunchPlan& plan, const StepInputs& inputs) {
  const std::span<const Launch> launches = plan.entries;
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
  read_from_gpu(device_->device, out, arena_.at(begin * sizeof(float)), bytes, "reading a value");
}

}  // namespace forge::metal
