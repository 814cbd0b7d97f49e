#include "../common/error.h"
#include "../common/host_weight.h"
#include "../common/json_text.h"
#include "executor.h"
#include "reference_kv.h"
#include "reference_state.h"

namespace forge {

namespace reference {

Executor::Executor(std::shared_ptr<const Program> program, const RankLinks& links)
    : HostExecutor(program, plan_scratch(*program, 1), links), arena_(plan_.elements) {
  values_ = arena_.data();
  scratch_bytes = arena_.size() * sizeof(float);
}

void Executor::run(const StepInputs& inputs, ResultBlock& results, const StopFlag& stop) {
  run_operations(inputs, results, stop, [this](const auto& op) { execute(op); });
}

class ReferenceBackend : public HostBackend {
 public:
  std::string info() const override {
    JsonObject info;
    info.add("name", "plain float32 reference");
    info.add("threads", 1);
    info.add_raw("features", "[]");
    info.add("kernels", "reference");
    info.add("memory_bytes", memory().total);
    return info.str();
  }

  std::shared_ptr<Weight> create_weight(WeightSource source) override {
    return std::make_shared<HostWeight>(std::move(source));
  }

  void read_weight(const Weight& weight, uint64_t first_row, uint64_t n_rows,
                   float* out) const override {
    static_cast<const HostWeight&>(weight).read(first_row, n_rows, out);
  }

  std::shared_ptr<KvCache> create_kv(const KvShape& shape) override {
    return std::make_shared<ReferenceKv>(shape);
  }

  std::shared_ptr<StateCache> create_state(const StateShape& shape) override {
    return std::make_shared<ReferenceState>(shape);
  }

  std::unique_ptr<Executable> compile(std::shared_ptr<const Program> program) override {
    return std::make_unique<Executor>(std::move(program), links_);
  }
};

}  // namespace reference

const char* backend_name() { return "reference"; }

std::string list_devices() { return R"([{"selector": "", "name": "plain float32 reference"}])"; }

std::unique_ptr<Backend> open_backend(std::string_view selector, uint32_t) {
  if (!selector.empty()) {
    fail(FORGE_INVALID_ARGUMENT, "the reference device has no variant \"", selector, "\"");
  }
  return std::make_unique<reference::ReferenceBackend>();
}

}  // namespace forge
