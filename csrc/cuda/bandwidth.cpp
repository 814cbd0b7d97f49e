#include "bandwidth.h"

#include <algorithm>
#include <chrono>

#include "launch.h"

namespace forge::cuda {

namespace {

// Reads pass the cache if they cover several times its size.
constexpr uint64_t kCaches = 8;
constexpr uint64_t kFewestBytes = 1u << 20;
constexpr int kReads = 16;
constexpr uint32_t kBlock = 256;
// Fills a multiprocessor with threads.
constexpr uint32_t kBlocksEach = 8;

}  // namespace

uint64_t measure_bandwidth(CudaDevice& owner) {
  const Device& device = owner.device();
  const DeviceTurn turn(device);
  const uint64_t most = kCaches * device.properties().l2_bytes;
  const uint64_t bytes = std::min(most, device.free_bytes() / 4) / 256 * 256;
  if (bytes < kFewestBytes) return 0;
  const Kernel& kernel = owner.kernels.get("read_memory.cu", "read_memory");
  owner.kernels.load();
  const DeviceBuffer data = owner.allocate(bytes);
  device.check(device.api().fill_bytes(data.at(), 0, bytes, device.stream()),
               "measuring the memory");
  const Grid grid{kBlocksEach * device.properties().multiprocessors};
  const Launch read(kernel, grid, kBlock, 0, data.at(), data.at(), bytes / 16);
  read.enqueue(device, false);  // wakes the clocks
  device.synchronize("measuring the memory");
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kReads; ++i) read.enqueue(device, i > 0);
  device.synchronize("measuring the memory");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<uint64_t>(kReads * static_cast<double>(bytes) / seconds.count());
}

}  // namespace forge::cuda
