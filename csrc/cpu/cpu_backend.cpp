// The CPU device: see common/backend.h.

#include <algorithm>

#include "../common/json_text.h"
#include "../common/process_memory.h"
#include "caches.h"
#include "cpu_executor.h"
#include "cpu_weight.h"
#include "host/cpu_device.h"
#include "host/processor.h"

namespace forge {

namespace cpu {

namespace {

// Of the free memory, left to this process and others, and to the files that are read.
constexpr uint64_t kLeastReserve = 256 << 20;
constexpr uint64_t kReserveShare = 16;

class CpuBackend : public HostBackend {
 public:
  CpuBackend(const KernelTable& kernels, const std::vector<NodeThreads>& nodes)
      : device_(std::make_shared<CpuDevice>(kernels, nodes)) {}

  std::string info() const override {
    JsonObject info;
    info.add("name", processor_name());
    info.add("threads", uint64_t{device_->pool.n_threads()});
    info.add_raw("features", json_list(cpu_features()));
    info.add("kernels", device_->kernels.name);
    info.add("memory_bytes", memory().total);
    info.add_raw("details", json_list({describe_nodes(device_->pool.nodes())}));
    return info.str();
  }

  void set_products(uint32_t products) override {
    // Packed weights have the layout of their products.
    if (has_steps_) fail(FORGE_INVALID_ARGUMENT, "products are chosen before the first step");
    const KernelTable& kernels = with_products(device_->kernels, products);
    device_ = std::make_shared<CpuDevice>(kernels, device_->pool.nodes(), device_->memory);
  }

  void set_nodes(uint32_t nodes) override {
    // The panels of weights and the heads of caches are divided among the nodes.
    if (has_steps_ || has_caches_) {
      fail(FORGE_INVALID_ARGUMENT, "NUMA nodes are chosen before the first cache and step");
    }
    const std::vector<NodeThreads> divided =
        divide_threads(nodes == 0 ? numa_nodes() : std::vector<NumaNode>(nodes, {0, 1, {}}),
                       device_->pool.n_threads());
    device_ = std::make_shared<CpuDevice>(device_->kernels, divided, device_->memory);
  }

  uint64_t set_memory(uint64_t bytes) override {
    if (has_steps_) fail(FORGE_INVALID_ARGUMENT, "memory is bounded before the first step");
    uint64_t bound = bytes;
    if (bytes == 0) {
      const uint64_t free = free_memory_bytes();
      bound = free - std::min(free, std::max(kLeastReserve, free / kReserveShare));
    }
    if (bound > 0) device_->memory->set(bound);
    return bound;
  }

  StreamedBytes streamed_bytes() const override {
    const auto lock = device_->lock();
    return device_->streamed;
  }

  uint64_t read_bandwidth() override {
    const auto lock = device_->lock();
    return cpu::read_bandwidth(device_->pool);
  }

  std::shared_ptr<Weight> create_weight(WeightSource source) override {
    return std::make_shared<CpuWeight>(std::move(source));
  }

  void read_weight(const Weight& weight, uint64_t first_row, uint64_t n_rows,
                   float* out) const override {
    static_cast<const CpuWeight&>(weight).read(first_row, n_rows, out);
  }

  std::shared_ptr<KvCache> create_kv(const KvShape& shape) override {
    has_caches_ = true;
    return std::make_shared<CpuKv>(shape, *device_);
  }

  std::shared_ptr<StateCache> create_state(const StateShape& shape) override {
    return std::make_shared<CpuState>(shape, *device_->memory);
  }

  std::unique_ptr<Executable> compile(std::shared_ptr<const Program> program) override {
    has_steps_ = true;
    return std::make_unique<CpuExecutor>(std::move(program), device_, links_);
  }

 private:
  std::shared_ptr<CpuDevice> device_;
  bool has_caches_ = false;
  bool has_steps_ = false;
};

}  // namespace

}  // namespace cpu

const char* backend_name() { return "cpu"; }

std::string list_devices() {
  std::string list;
  for (const cpu::KernelTable* kernels : cpu::available_kernels()) {
    JsonObject device;
    device.add("selector", kernels->name);
    device.add("name", cpu::processor_name());
    device.add("memory_bytes", host_memory_bytes());
    if (!list.empty()) list += ", ";
    list += device.str();
  }
  return "[" + list + "]";
}

std::unique_ptr<Backend> open_backend(std::string_view selector, uint32_t n_threads) {
  const cpu::KernelTable& kernels = cpu::choose_kernels(selector);
  const std::vector<cpu::NumaNode> nodes = cpu::numa_nodes();
  if (n_threads == 0) n_threads = cpu::usable_cores(nodes);
  return std::make_unique<cpu::CpuBackend>(kernels, cpu::divide_threads(nodes, n_threads));
}

}  // namespace forge
