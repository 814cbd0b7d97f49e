#include "bandwidth.h"

#include <algorithm>
#include <chrono>

#include "../../kernels/metal/arguments.h"
#include "commands.h"
#include "transfers.h"

namespace forge::metal {

using namespace metal_args;

namespace {

// Several times the size of any cache, if the memory is free.
constexpr uint64_t kMostBytes = 256u << 20;
constexpr uint64_t kFewestBytes = 16u << 20;
constexpr uint64_t kGroupBytes = uint64_t{kReadFours} * 4 * sizeof(float);
constexpr uint64_t kGroupSums = kReadThreads / 32 * sizeof(float);
constexpr int kReads = 4;

}  // namespace

uint64_t measure_bandwidth(MetalDevice& owner) {
  const std::shared_ptr<const Device>& device = owner.device;
  const std::lock_guard lock(device->mutex());
  const uint64_t free =
      std::min({kMostBytes, device->free_bytes() / 4, device->properties().max_buffer_bytes});
  if (free < kFewestBytes) return 0;
  const uint64_t groups = free / kGroupBytes, bytes = groups * kGroupBytes;
  const Buffer memory(device, bytes, Purpose::activations, Storage::gpu_only);
  const Buffer sums(device, groups * kGroupSums, Purpose::activations, Storage::gpu_only);
  // Pages that were never written may share one physical page.
  fill_with_zeros(*device, memory, "measuring the memory");
  const Kernel& kernel = owner.kernels.get("read_memory", "read_memory");
  owner.kernels.load();
  const Launch launch(kernel, {static_cast<uint32_t>(groups)}, {kReadThreads},
                      {sums.at(), memory.at()}, ReadMemoryArgs{1.0f});
  const auto read = [&](int times) {
    Commands commands(*device);
    for (int i = 0; i < times; ++i) commands.launch({&launch, 1}, owner.filler.at());
    commands.commit();
    commands.wait("measuring the memory");
  };
  read(1);  // wakes the clocks
  const auto start = std::chrono::steady_clock::now();
  read(kReads);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<uint64_t>(kReads * static_cast<double>(bytes) / seconds.count());
}

}  // namespace forge::metal
