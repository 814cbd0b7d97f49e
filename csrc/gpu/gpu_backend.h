#pragma once

#include <algorithm>
#include <memory>
#include <thread>

#include "../common/host_weight.h"
#include "device_caches.h"

namespace forge {

// Host threads of a device opened with `n_threads`; 0 is one for each core.
inline uint32_t host_threads(uint32_t n_threads) {
  return n_threads ? n_threads : std::max(1u, std::thread::hardware_concurrency());
}

// A backend that creates weights, caches and steps of a device. `Gpu` names the types of the
// device.
template <class Gpu>
class GpuBackend : public Backend {
 public:
  DeviceMemory memory() const override {
    const DeviceRoom room = device_->handle()->room();
    return {room.total_bytes, room.free_bytes};
  }

  std::shared_ptr<Weight> create_weight(WeightSource source) override {
    return std::make_shared<typename Gpu::Weight>(std::move(source));
  }

  void read_weight(const Weight& weight, uint64_t first_row, uint64_t n_rows,
                   float* out) const override {
    static_cast<const HostWeight&>(weight).read(first_row, n_rows, out);
  }

  std::shared_ptr<KvCache> create_kv(const KvShape& shape) override {
    return std::make_shared<KvCacheIn<typename Gpu::CacheTransfers>>(shape, device_->handle());
  }

  std::shared_ptr<StateCache> create_state(const StateShape& shape) override {
    return std::make_shared<StateCacheIn<typename Gpu::CacheTransfers>>(shape, device_->handle());
  }

  std::unique_ptr<Executable> compile(std::shared_ptr<const Program> program) override {
    return std::make_unique<typename Gpu::Executor>(std::move(program), device_);
  }

 protected:
  explicit GpuBackend(std::shared_ptr<typename Gpu::Device> device) : device_(std::move(device)) {}

  std::shared_ptr<typename Gpu::Device> device_;
};

}  // namespace forge
