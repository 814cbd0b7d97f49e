#include "bandwidth.h"

#include <algorithm>
#include <chrono>

#include "commands.h"

namespace forge::metal {

namespace {

// Several times the size of any cache, if the memory is free.
constexpr uint64_t kMostBytes = 256u << 20;
constexpr uint64_t kFewestBytes = 16u << 20;
constexpr int kCopies = 8;

}  // namespace

uint64_t measure_bandwidth(const std::shared_ptr<const Device>& device) {
  const std::lock_guard lock(device->mutex());
  const uint64_t bytes =
      std::min({kMostBytes, device->free_bytes() / 4, device->properties().max_buffer_bytes}) & ~3ull;
  if (bytes < kFewestBytes) return 0;
  const Buffer from(device, bytes, Purpose::activations, Storage::gpu_only);
  const Buffer to(device, bytes, Purpose::activations, Storage::gpu_only);
  const auto copy = [&](int times) {
    Commands commands(*device);
    for (int i = 0; i < times; ++i) commands.copy(to.at(), from.at(), bytes);
    commands.commit();
    commands.wait("measuring the memory");
  };
  copy(1);  // wakes the clocks
  const auto start = std::chrono::steady_clock::now();
  copy(kCopies);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<uint64_t>(2.0 * kCopies * static_cast<double>(bytes) / seconds.count());
}

}  // namespace forge::metal
