#pragma once

#include <cstdint>

namespace forge::cpu {

// Zeroed memory, committed when it is written, in huge pages if the system has them. A guard page
// follows the last one.
class Memory {
 public:
  Memory() = default;
  explicit Memory(uint64_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  uint8_t* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }
  uint64_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace forge::cpu
