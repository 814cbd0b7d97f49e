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
// Memory that plans are built with only to see what they need.
constexpr PlanMemory kNoMemory{};

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
  const Device& gpu = device_->device();
  const std::lock_guard lock(gpu.mutex());
  gpu.require_working();
  const DeviceScope scope(gpu);

  WeightUpload upload(device_->state, device_->kernels, device_->n_threads);
  request_weights(*program_, upload);
  WorkspaceBytes workspace;
  std::vector<StepShape> shapes = typical_shapes(*program_, tiling_);
  for (StepShape& shape : shapes) note_most_rows(shape);
  for (const StepShape& shape : shapes) {
    PlanBuilder plan = builder(kNoMemory, shape, {});
    plan.build();
    workspace.routes = std::max(workspace.routes, plan.workspace_bytes().routes);
    workspace.scratch = std::max(workspace.scratch, plan.workspace_bytes().scratch);
  }

  const uint64_t occurrences =
      program_->samples ? limits.max_outputs * program_->logits_cols * sizeof(uint32_t) : 0;
  const uint64_t results = program_->samples ? limits.max_outputs * result_stride() : 0;
  scratch_bytes = values_.elements * sizeof(float) + workspace.routes + workspace.scratch +
                  occurrences + results + DeviceInputs::device_bytes(*program_, shapes);
  const MemoryNeeds needs{upload.bytes(), missing_caches(*program_), scratch_bytes};
  require_memory(device_->state->room(), needs);

  device_->kernels.load();
  upload.run();
  if (needs_codebooks(*program_)) memory_.codebooks = device_->codebooks();
  for (const DeviceKv* cache : needs.caches) cache->allocate();
  const auto take = [&](uint64_t bytes) {
    return DeviceBuffer(device_->state, bytes, Purpose::activations);
  };
  arena_ = take(values_.elements * sizeof(float));
  routes_ = take(workspace.routes);
  scratch_ = take(workspace.scratch);
  occurrences_ = take(occurrences);
  results_ = take(results);
  if (results > 0) results_host_ = PinnedBuffer(device_->state, results);
  inputs_ = std::make_unique<DeviceInputs>(device_->state, *program_, shapes);
  if (occurrences > 0) {
    gpu.check(gpu.api().fill_bytes(occurrences_.at(), 0, occurrences, gpu.stream()),
              "clearing counts of tokens");
  }
  memory_.values = arena_.at();
  memory_.workspace = {routes_.at(), scratch_.at()};
  memory_.occurrences = occurrences_.at();
  memory_.results = results_.at();
  gpu.synchronize("preparing the step");
}

// Sequences that share pages can see more positions together than there are pages for.
void CudaExecutor::grow_workspace(const WorkspaceBytes& needed) {
  plans_.clear();
  const auto grow = [&](DeviceBuffer& buffer, uint64_t bytes) {
    if (bytes <= buffer.bytes()) return;
    buffer = DeviceBuffer();
    buffer = DeviceBuffer(device_->state, bytes, Purpose::activations);
  };
  grow(routes_, needed.routes);
  grow(scratch_, needed.scratch);
  memory_.workspace = {routes_.at(), scratch_.at()};
}

PlanBuilder CudaExecutor::builder(const PlanMemory& memory, const StepShape& shape,
                                  const InputAddresses& inputs) {
  return PlanBuilder(*program_, values_, memory, shape, inputs, *device_, attention_);
}

CudaExecutor::Plan& CudaExecutor::plan_for(const StepShape& shape) {
  const auto known = plans_.find(shape);
  if (known != plans_.end()) {
    if (known->second.inputs_generation == inputs_->generation()) return known->second;
    plans_.erase(known);
  }
  const auto build = [&](WorkspaceBytes& needed) {
    PlanBuilder plan = builder(memory_, shape, inputs_->addresses(shape));
    LaunchPlan list = plan.build();
    needed = plan.workspace_bytes();
    return list;
  };
  WorkspaceBytes needed;
  LaunchPlan list = build(needed);
  if (needed.routes > routes_.bytes() || needed.scratch > scratch_.bytes()) {
    grow_workspace(needed);
    list = build(needed);
  }
  Plan plan{std::move(list), inputs_->generation(), 0, nullptr, nullptr};
  device_->kernels.load();
  for (const PlanEntry& entry : plan.list.entries) {
    if (const auto* launch = std::get_if<Launch>(&entry)) launch->verify(device_->device());
  }
  if (device_->device().is_traced()) {
    std::fprintf(stderr, "%s\n", plan_summary(shape, plan.list.entries).c_str());
  }
  return plans_.emplace(shape, std::move(plan)).first->second;
}

void CudaExecutor::run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) {
  const Device& gpu = device_->device();
  const std::lock_guard lock(gpu.mutex());
  gpu.require_working();
  const DeviceScope scope(gpu);
  stop.check();
  const QueryTiles tiles = query_tiles(inputs, tiling_);
  const StepRows rows = step_rows(inputs);
  StepShape shape = shape_of(inputs, tiles, program_->limits);
  note_rows(rows, program_->limits, shape);
  inputs_->reserve(inputs, shape);
  Plan& plan = plan_for(shape);
  if (profile_) profile_->begin_run();
  try {
    inputs_->copy(inputs, tiles, rows, shape);
    ++plan.runs;
    const LaunchPlan& list = plan.list;
    enqueue(plan, plan.forward, 0, list.sampling_begin, shape, stop);
    // The caller computes the masks while the device computes the logits.
    if (!inputs.masks.empty()) {
      inputs.masks_ready.wait();
      inputs_->copy_masks(inputs);
    }
    enqueue(plan, plan.sampling, list.sampling_begin, list.entries.size(), shape, stop);
    copy_results(inputs, results);
    if (profile_) profile_->finish_run(inputs.n_tokens);
  } catch (...) {
    // What is on the stream still reads the buffers that the next run fills.
    gpu.api().stream_synchronize(gpu.stream());
    throw;
  }
}

void CudaExecutor::enqueue(const Plan& plan, std::unique_ptr<StepGraph>& graph, size_t begin,
                           size_t end, const StepShape& shape, const StopFlag& stop) {
  if (begin == end) return;
  const std::vector<PlanEntry>& entries = plan.list.entries;
  const Device& gpu = device_->device();
  // What runs once is not worth a graph, and what is looked into runs piece by piece.
  const bool in_pieces = gpu.is_synchronous() || profile_;
  if (plan.runs > 1 && shape.tokens <= kMostGraphTokens && !in_pieces) {
    if (!graph) graph = std::make_unique<StepGraph>(device_->state, entries, begin, end);
    graph->replay();
    return;
  }
  for (size_t i = begin; i < end; ++i) {
    if (i % kStopInterval == 0) stop.check();
    if (profile_) profile_->begin();
    cuda::enqueue(entries[i], gpu);
    if (profile_) {
      profile_->end(std::visit([](const auto& work) { return std::string(work.name()); },
                               entries[i]));
    }
  }
}

void CudaExecutor::copy_results(const StepInputs& inputs, ResultBlock& results) {
  const Device& gpu = device_->device();
  const uint64_t bytes = program_->samples ? inputs.n_outputs * result_stride() : 0;
  if (bytes > 0) {
    gpu.check(gpu.api().copy_to_host(results_host_.data(), results_.at(), bytes, gpu.stream()),
              "copying results");
  }
  gpu.synchronize("running the step");
  if (bytes > 0) std::memcpy(&results.header(0), results_host_.data(), bytes);
}

void CudaExecutor::read(uint32_t value, uint64_t first_row, uint64_t n_rows, float* out) const {
  const Device& gpu = device_->device();
  const std::lock_guard lock(gpu.mutex());
  gpu.require_working();
  const DeviceScope scope(gpu);
  const uint64_t cols = program_->value(value).cols;
  const uint64_t begin = values_.offsets[value - 1] + first_row * cols;
  gpu.check(gpu.api().copy_to_host(out, arena_.at(begin * sizeof(float)),
                                   n_rows * cols * sizeof(float), gpu.stream()),
            "reading a value");
  gpu.synchronize("reading a value");
}

}  // namespace forge::cuda
