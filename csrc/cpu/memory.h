#pragma once

#include <cstdint>

namespace forge::cpu {

// Zeroed memory that costs nothing until it is written, in large pages where the system has them. The
// page after its last one cannot be touched.
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
