#pragma once

// The memory of a device: its size, what forge holds of it, and errors when it runs short.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace forge {

enum class Purpose { weights, kv_cache, activations };

// Bytes of device memory that forge holds, by purpose.
class MemoryLedger {
 public:
  void add(Purpose purpose, int64_t bytes) { bytes_[static_cast<size_t>(purpose)] += bytes; }
  uint64_t bytes(Purpose purpose) const {
    return static_cast<uint64_t>(bytes_[static_cast<size_t>(purpose)].load());
  }

 private:
  std::array<std::atomic<int64_t>, 3> bytes_{};
};

struct DeviceRoom {
  std::string device;  // as in "CUDA device 0 (NVIDIA H100)"
  uint64_t free_bytes;
  uint64_t total_bytes;
};

// Bytes that a step allocates when it is compiled.
struct MemoryNeeds {
  uint64_t weights = 0;
  uint64_t kv_cache = 0;
  uint64_t recurrent_state = 0;
  uint64_t activations = 0;
  // One page of every layer in `kv_cache`, and the tokens it holds.
  uint64_t page_bytes = 0;
  uint32_t page_tokens = 0;

  uint64_t total() const { return weights + kv_cache + recurrent_state + activations; }
};

// Throws FORGE_OUT_OF_MEMORY, with the sizes and the longest context that fits, if the free memory
// is too small.
void require_memory(const DeviceRoom& room, const MemoryNeeds& needs);

// Throws FORGE_OUT_OF_MEMORY for an allocation of `bytes`, listing what forge holds and how to use
// less.
[[noreturn]] void fail_out_of_memory(const DeviceRoom& room, const MemoryLedger& ledger,
                                     uint64_t bytes, Purpose purpose);

// Returns "1.5 GiB", "312 MiB", "4 KiB".
std::string size_text(uint64_t bytes);

}  // namespace forge
