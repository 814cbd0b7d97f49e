#pragma once

// Runs a program on a GPU: allocates what its steps need, and plans launches once for each shape of
// its inputs. Each device derives an executor, which turns plans into work on its queue.
//
// `Gpu` names the device's types: Device, Address, Buffer, InputArea, Builder (a Planner), Shape (a
// StepShape with what else plans depend on) and Plan (a CachedPlan with what else is kept of one).

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "device_inputs.h"
#include "launch_geometry.h"
#include "planner.h"

namespace forge {

template <class Entry>
struct CachedPlan {
  LaunchPlan<Entry> list;
  uint64_t inputs_generation = 0;
  uint64_t last_use = 0;  // a later use has a larger number
};

// Plans that a step keeps; the least recently used one makes room for a new one. Decoding on a busy
// server has about 20 shapes. Each plan may hold two graphs of some hundred launches on the device.
constexpr size_t kMostPlans = 32;

template <class Gpu>
class StepExecutor : public Executable {
 public:
  void read(uint32_t value, uint64_t first_row, uint64_t n_rows, float* out) const override {
    const uint64_t cols = program_->value(value).cols;
    const uint64_t begin = values_.offsets[value - 1] + first_row * cols;
    const uint64_t bytes = n_rows * cols * sizeof(float);
    if (bytes > 0) read_memory(out, arena_.at(begin * sizeof(float)), bytes);
  }

 protected:
  using Device = typename Gpu::Device;
  using Address = typename Gpu::Address;
  using Buffer = typename Gpu::Buffer;
  using Builder = typename Gpu::Builder;
  using Shape = typename Gpu::Shape;
  using Plan = typename Gpu::Plan;

  StepExecutor(std::shared_ptr<const Program> program, std::shared_ptr<Device> device,
               const TilingPolicy& tiling)
      : program_(std::move(program)),
        device_(std::move(device)),
        tiling_(tiling),
        values_(plan_scratch(*program_, kValueAlignment)) {}

  // Returns the shapes of all plans for runs of a shape.
  virtual std::vector<Shape> plan_shapes(const StepShape& shape) const = 0;
  virtual Builder builder(const PlanRequest<Address>& request, const Shape& shape) = 0;
  // Names kernels that `finish` will replace launches of a plan by.
  virtual void name_kernels(const Shape&, const LaunchPlan<typename Gpu::Entry>&) {}
  // Checks and completes a plan whose kernels are loaded.
  virtual void finish(const Shape& shape, Plan& plan) = 0;
  // Allocates memory for results and returns the address at which launches write them.
  virtual Address allocate_results(uint64_t bytes) = 0;
  virtual void clear(const Buffer& buffer) = 0;
  virtual void read_memory(float* to, Address from, uint64_t bytes) const = 0;

  // Brings everything that the program needs to the device, including its kernels. Throws
  // FORGE_OUT_OF_MEMORY before allocating anything if it does not fit. The caller holds the device.
  void prepare(WeightRequests& weights) {
    request_weights(*program_, weights);
    weights.lay_out();
    const std::vector<StepShape> shapes = typical_shapes(*program_, tiling_);
    const StepBytes bytes = step_bytes(*program_, values_, typical_workspace(shapes), shapes);
    scratch_bytes = bytes.total();
    const MissingCaches caches = missing_caches(*program_);
    require_memory(device_->handle()->room(), memory_needs(weights.bytes(), caches, bytes));

    device_->kernels.load();
    weights.run();
    if (needs_codebooks(*program_)) memory_.codebooks = device_->codebooks();
    caches.allocate();
    allocate(bytes);
    inputs_ = std::make_unique<Inputs>(device_->handle(), *program_, shapes);
  }

  // Returns the plan of a shape for the inputs that were last reserved.
  Plan& plan_for(const Shape& shape) {
    const auto known = plans_.find(shape);
    if (known != plans_.end()) {
      if (known->second.inputs_generation == inputs_->generation()) return used(known->second);
      plans_.erase(known);
    }
    if (plans_.size() >= kMostPlans) {
      plans_.erase(std::ranges::min_element(
          plans_, {}, [](const auto& entry) { return entry.second.last_use; }));
    }
    Plan plan{};
    plan.list = build(shape);
    plan.inputs_generation = inputs_->generation();
    device_->kernels.load();
    finish(shape, plan);
    return used(plans_.emplace(shape, std::move(plan)).first->second);
  }

  // Returns the launch of next_step, which follows each step of a series of this shape.
  template <class Launch, class Kernel>
  Launch next_step(const Kernel& kernel, const StepShape& shape, Address all_results) const {
    const InputLayout layout(shape);
    const kernel_args::NextStep::Buffers<Address> buffers = {
        .control = inputs_->series(),
        .inputs = inputs_->piece(),
        .history = inputs_->addresses(shape).history,
        .results = memory_.results,
        .all_results = all_results};
    const kernel_args::NextStepArgs args = {
        .piece_bytes = static_cast<uint32_t>(layout.bytes),
        .result_words = static_cast<uint32_t>(result_bytes(*program_, 1) / sizeof(uint32_t)),
        .n_outputs = static_cast<uint32_t>(InputLayout::n_outputs),
        .tokens = static_cast<uint32_t>(layout.tokens),
        .sampling = static_cast<uint32_t>(layout.sampling)};
    return Launch(kernel, geometry(args),
                  {reinterpret_cast<const Address*>(&buffers), sizeof(buffers) / sizeof(Address)},
                  {reinterpret_cast<const uint8_t*>(&args), sizeof(args)});
  }

  using Inputs = DeviceInputs<typename Gpu::InputArea>;

  std::shared_ptr<const Program> program_;
  std::shared_ptr<Device> device_;
  const TilingPolicy tiling_;
  std::unique_ptr<Inputs> inputs_;

 private:
  // Values are aligned for any vector load.
  static constexpr uint64_t kValueAlignment = 64;

  Plan& used(Plan& plan) {
    plan.last_use = ++uses_;
    return plan;
  }

  // Plans all typical shapes, which names their kernels; returns the workspace they need.
  WorkspaceBytes typical_workspace(const std::vector<StepShape>& shapes) {
    WorkspaceBytes most;
    for (const StepShape& step : shapes) {
      for (const Shape& shape : plan_shapes(step)) {
        Builder planner = builder({*program_, values_, {}, step, {}}, shape);
        name_kernels(shape, planner.build());
        most.grow_to(planner.workspace_bytes());
      }
    }
    return most;
  }

  void allocate(const StepBytes& bytes) {
    arena_ = device_->allocate(bytes.values);
    routes_ = device_->allocate(bytes.workspace.routes);
    scratch_ = device_->allocate(bytes.workspace.scratch);
    arrivals_ = device_->allocate(bytes.workspace.arrivals);
    if (bytes.workspace.arrivals > 0) clear(arrivals_);
    memory_.values = arena_.at();
    memory_.workspace = {routes_.at(), scratch_.at()};
    memory_.arrivals = arrivals_.at();
    memory_.results = allocate_results(bytes.results);
  }

  // Plans a shape; grows the workspace if it is too small.
  LaunchPlan<typename Gpu::Entry> build(const Shape& shape) {
    for (;;) {
      Builder planner =
          builder({*program_, values_, memory_, shape, inputs_->addresses(shape)}, shape);
      auto plan = planner.build();
      const WorkspaceBytes& needed = planner.workspace_bytes();
      if (WorkspaceBytes{routes_.bytes(), scratch_.bytes(), arrivals_.bytes()}.covers(needed)) {
        return plan;
      }
      grow_workspace(needed);
    }
  }

  // Sequences that share pages can see more positions together than the pages hold.
  void grow_workspace(const WorkspaceBytes& needed) {
    plans_.clear();
    const auto grow = [&](Buffer& buffer, uint64_t bytes) {
      if (bytes <= buffer.bytes()) return false;
      buffer = Buffer();
      buffer = device_->allocate(bytes);
      return true;
    };
    grow(routes_, needed.routes);
    grow(scratch_, needed.scratch);
    if (grow(arrivals_, needed.arrivals)) clear(arrivals_);
    memory_.workspace = {routes_.at(), scratch_.at()};
    memory_.arrivals = arrivals_.at();
  }

  ScratchPlan values_;
  Buffer arena_, routes_, scratch_, arrivals_;
  PlanMemory<Address> memory_;
  std::map<Shape, Plan> plans_;
  uint64_t uses_ = 0;
};

}  // namespace forge
