#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace forge {

// What device memory is taken for.
enum class Purpose { weights, kv_cache, activations };

// Bytes of device memory by purpose, for messages when it runs short.
class MemoryLedger {
 public:
  void add(Purpose purpose, int64_t bytes) { bytes_[static_cast<size_t>(purpose)] += bytes; }
  uint64_t bytes(Purpose purpose) const {
    return static_cast<uint64_t>(bytes_[static_cast<size_t>(purpose)].load());
  }

 private:
  std::array<std::atomic<int64_t>, 3> bytes_{};
};

// The memory of a device as messages tell of it.
struct DeviceRoom {
  std::string device;  // as in "CUDA device 0 (NVIDIA H100)"
  uint64_t free_bytes;
  uint64_t total_bytes;
};

// Throws FORGE_OUT_OF_MEMORY for `bytes` more, saying what holds the memory and what takes less.
[[noreturn]] void fail_out_of_memory(const DeviceRoom& room, const MemoryLedger& ledger,
                                     uint64_t bytes, Purpose purpose);

// "1.5 GiB", "312 MiB", "4 KiB".
std::string size_text(uint64_t bytes);

}  // namespace forge
