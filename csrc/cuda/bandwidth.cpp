#include "bandwidth.h"

#include <algorithm>
#include <chrono>

namespace forge::cuda {

namespace {

// Several times the size of any cache, if the memory is free.
constexpr uint64_t kMostBytes = 512u << 20;
constexpr uint64_t kFewestBytes = 16u << 20;
constexpr int kCopies = 8;

}  // namespace

uint64_t measure_bandwidth(const std::shared_ptr<DeviceState>& state) {
  const Device& device = state->device;
  const DeviceTurn turn(device);
  const uint64_t bytes = std::min(kMostBytes, device.free_bytes() / 4);
  if (bytes < kFewestBytes) return 0;
  const DeviceBuffer from(state, bytes, Purpose::activations);
  const DeviceBuffer to(state, bytes, Purpose::activations);
  const auto copy = [&] {
    device.check(device.api().copy_on_device(to.at(), from.at(), bytes, device.stream()),
                 "measuring the memory");
  };
  copy();  // wakes the clocks
  device.synchronize("measuring the memory");
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCopies; ++i) copy();
  device.synchronize("measuring the memory");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<uint64_t>(2.0 * kCopies * static_cast<double>(bytes) / seconds.count());
}

}  // namespace forge::cuda
