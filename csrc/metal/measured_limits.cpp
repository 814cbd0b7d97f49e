#include "measured_limits.h"

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

// A run of at least this long outweighs the time of a launch and of waking the clocks.
constexpr double kLongSeconds = 4e-3;
constexpr uint32_t kFewestMultipliers = 8, kMostMultipliers = 1 << 16;

// Runs a launch several times; returns the seconds that it took.
double seconds_of(const MetalDevice& owner, const Launch& launch, int times, const char* what) {
  const auto start = std::chrono::steady_clock::now();
  Commands commands(*owner.device);
  for (int i = 0; i < times; ++i) commands.launch({&launch, 1}, owner.filler.at());
  commands.commit();
  commands.wait(what);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

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
  seconds_of(owner, launch, 1, "measuring the memory");  // wakes the clocks
  const double seconds = seconds_of(owner, launch, kReads, "measuring the memory");
  return static_cast<uint64_t>(kReads * static_cast<double>(bytes) / seconds);
}

uint64_t measure_matrix_rate(MetalDevice& owner) {
  const std::shared_ptr<const Device>& device = owner.device;
  const std::lock_guard lock(device->mutex());
  const Kernel& kernel = owner.kernels.get("multiply_matrices", "multiply_matrices");
  owner.kernels.load();
  const Buffer sums(device, kMultiplySums * sizeof(float), Purpose::activations,
                    Storage::gpu_only);
  for (uint32_t groups = kFewestMultipliers;; groups *= 4) {
    const Launch launch(kernel, {groups}, {kMultiplyThreads}, {sums.at()},
                        MultiplyMatricesArgs{1.0f});
    const double seconds = seconds_of(owner, launch, 1, "measuring products of matrices");
    if (seconds < kLongSeconds && groups < kMostMultipliers) continue;
    const uint64_t products = uint64_t{groups} * (kMultiplyThreads / 32) * kMultiplyRounds *
                              kMultiplyMatrices * 8 * 8 * 8;
    return static_cast<uint64_t>(2 * static_cast<double>(products) / seconds);
  }
}

}  // namespace forge::metal
