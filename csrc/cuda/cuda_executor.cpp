#include "cuda_executor.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "../gpu/memory_needs.h"
#include "weight_upload.h"

namespace forge::cuda {

namespace {

// Every value begins where any vector load may.
constexpr uint64_t kValueAlignment = 64;
// Grids have one block along y for each row.
constexpr uint32_t kMostTokens = kMostGridRows;
// Steps this small take less time than their launches one by one.
constexpr uint32_t kMostGraphTokens = 64;
// How many launches may lie between two looks at the stop flag.
constexpr size_t kStopInterval = 16;

}  // namespace

CudaExecutor::CudaExecutor(std::shared_ptr<const Program> program,
                           std::shared_ptr<CudaDevice> device)
    : program_(std::move(program)),
      device_(std::move(device)),
      attention_(device_->attention, device_->flash()),
      tiling_(attention_.policy(*program_)),
      values_(plan_scratch(*program_, kValueAlignment)),
      profile_(Profile::create(device_->state)) {
  const StepLimits& limits = program_->limits;
  require(limits.max_tokens <= kMostTokens, "a step of ", limits.max_tokens,
          " tokens; the CUDA device takes up to ", kMostTokens);
  const DeviceTurn turn(device_->device());
  WeightUpload weights(device_->state, device_->kernels, device_->n_threads);
  request_weights(*program_, weights);
  const std::vector<StepShape> shapes = typical_shapes(*program_, tiling_);
  const StepBytes bytes = step_bytes(*program_, values_, plan_typical(shapes), shapes);
  scratch_bytes = bytes.total();
  const MemoryNeeds needs{weights.bytes(), missing_caches(*program_), missing_states(*program_),
                          scratch_bytes};
  require_memory(device_->state->room(), needs);

  device_->kernels.load();
  weights.run();
  if (needs_codebooks(*program_)) memory_.codebooks = device_->codebooks();
  for (const DeviceKv* cache : needs.caches) cache->allocate();
  for (const DeviceSlots* state : needs.states) state->allocate();
  allocate(bytes);
  inputs_ = std::make_unique<DeviceInputs>(device_->state, *program_, shapes);
  device_->device().synchronize("preparing the step");
}

WorkspaceBytes CudaExecutor::plan_typical(const std::vector<StepShape>& shapes) {
  WorkspaceBytes most;
  for (const StepShape& shape : shapes) {
    PlanBuilder builder({*program_, values_, {}, shape, {}}, *device_, attention_);
    builder.build();
    most.grow_to(builder.workspace_bytes());
  }
  return most;
}

DeviceBuffer CudaExecutor::take(uint64_t bytes) const {
  return DeviceBuffer(device_->state, bytes, Purpose::activations);
}

void CudaExecutor::allocate(const StepBytes& bytes) {
  arena_ = take(bytes.values);
  routes_ = take(bytes.workspace.routes);
  scratch_ = take(bytes.workspace.scratch);
  occurrences_ = take(bytes.occurrences);
  results_ = take(bytes.results);
  if (bytes.results > 0) results_host_ = PinnedBuffer(device_->state, bytes.results);
  if (bytes.occurrences > 0) {
    const Device& gpu = device_->device();
    gpu.check(gpu.api().fill_bytes(occurrences_.at(), 0, bytes.occurrences, gpu.stream()),
              "clearing counts of tokens");
  }
  memory_.values = arena_.at();
  memory_.workspace = {routes_.at(), scratch_.at()};
  memory_.occurrences = occurrences_.at();
  memory_.results = results_.at();
}

// Sequences that share pages can see more positions together than there are pages for.
void CudaExecutor::grow_workspace(const WorkspaceBytes& needed) {
  plans_.clear();
  const auto grow = [&](DeviceBuffer& buffer, uint64_t bytes) {
    if (bytes <= buffer.bytes()) return;
    buffer = DeviceBuffer();
    buffer = take(bytes);
  };
  grow(routes_, needed.routes);
  grow(scratch_, needed.scratch);
  memory_.workspace = {routes_.at(), scratch_.at()};
}

CudaExecutor::Plan& CudaExecutor::plan_for(const StepShape& shape) {
  const auto known = plans_.find(shape);
  if (known != plans_.end()) {
    if (known->second.inputs_generation == inputs_->generation()) return known->second;
    plans_.erase(known);
  }
  Plan plan{.list = build(shape),
            .inputs_generation = inputs_->generation(),
            .max_tokens = shape.tokens};
  device_->kernels.load();
  for (const PlanEntry& entry : plan.list.entries) {
    if (const auto* launch = std::get_if<Launch>(&entry)) launch->verify(device_->device());
  }
  if (device_->device().is_traced()) {
    std::fprintf(stderr, "%s\n", plan_summary(shape, plan.list.entries).c_str());
  }
  return plans_.emplace(shape, std::move(plan)).first->second;
}

LaunchPlan CudaExecutor::build(const StepShape& shape) {
  for (;;) {
    PlanBuilder builder({*program_, values_, memory_, shape, inputs_->addresses(shape)}, *device_,
                        attention_);
    LaunchPlan plan = builder.build();
    const WorkspaceBytes& needed = builder.workspace_bytes();
    if (WorkspaceBytes{routes_.bytes(), scratch_.bytes()}.covers(needed)) return plan;
    grow_workspace(needed);
  }
}

void CudaExecutor::run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) {
  const Device& gpu = device_->device();
  const DeviceTurn turn(gpu);
  stop.check();
  const RunWork work = deal_out(inputs, program_->limits, tiling_);
  inputs_->reserve(inputs, work.shape);
  Plan& plan = plan_for(work.shape);
  if (profile_) profile_->begin_run();
  try {
    inputs_->copy(inputs, work);
    ++plan.runs;
    const LaunchPlan& list = plan.list;
    enqueue(plan, plan.forward, {0, list.sampling_begin, false}, stop);
    // The caller computes the masks while the device computes the logits.
    if (!inputs.masks.empty()) {
      inputs.masks_ready.wait();
      inputs_->copy_masks(inputs);
    }
    const bool follows_kernel = list.sampling_begin > 0 && inputs.masks.empty();
    enqueue(plan, plan.sampling, {list.sampling_begin, list.entries.size(), follows_kernel}, stop);
    copy_results(inputs, results);
    if (profile_) profile_->finish_run(inputs.n_tokens);
  } catch (...) {
    // What is on the stream still reads the buffers that the next run fills.
    gpu.api().stream_synchronize(gpu.stream());
    throw;
  }
}

void CudaExecutor::enqueue(const Plan& plan, std::unique_ptr<StepGraph>& graph,
                           const Section& section, const StopFlag& stop) {
  const auto [begin, end, follows_kernel] = section;
  if (begin == end) return;
  const std::vector<PlanEntry>& entries = plan.list.entries;
  const Device& gpu = device_->device();
  // What runs once is not worth a graph, and what is looked into runs piece by piece.
  const bool is_captured = gpu.captures_graphs() && !profile_;
  if (plan.runs > 1 && plan.max_tokens <= kMostGraphTokens && is_captured) {
    if (!graph) {
      graph = std::make_unique<StepGraph>(device_->state, entries, begin, end);
      if (gpu.is_traced()) {
        std::fprintf(stderr, "graph for %u tokens: %zu launches\n", plan.max_tokens, end - begin);
      }
    }
    graph->replay();
    return;
  }
  for (size_t i = begin; i < end; ++i) {
    if (i % kStopInterval == 0) stop.check();
    if (profile_) profile_->begin();
    // Those whose times are taken come behind events.
    cuda::enqueue(entries[i], gpu, (i > begin || follows_kernel) && !profile_);
    if (profile_) {
      profile_->end(std::visit([](const auto& work) { return std::string(work.name()); },
                               entries[i]));
    }
  }
}

void CudaExecutor::copy_results(const StepInputs& inputs, ResultBlock& results) {
  const Device& gpu = device_->device();
  const uint64_t bytes = result_bytes(*program_, inputs.n_outputs);
  if (bytes > 0) {
    gpu.check(gpu.api().copy_to_host(results_host_.data(), results_.at(), bytes, gpu.stream()),
              "copying results");
  }
  gpu.synchronize("running the step");
  if (bytes > 0) std::memcpy(&results.header(0), results_host_.data(), bytes);
}

void CudaExecutor::read(uint32_t value, uint64_t first_row, uint64_t n_rows, float* out) const {
  const Device& gpu = device_->device();
  const DeviceTurn turn(gpu);
  const uint64_t cols = program_->value(value).cols;
  const uint64_t begin = values_.offsets[value - 1] + first_row * cols;
  gpu.check(gpu.api().copy_to_host(out, arena_.at(begin * sizeof(float)),
                                   n_rows * cols * sizeof(float), gpu.stream()),
            "reading a value");
  gpu.synchronize("reading a value");
}

}  // namespace forge::cuda
