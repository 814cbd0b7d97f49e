#pragma once

// Memory of buffers: each ends at a page that cannot be touched, is filled with 0xff (NaN), and can
// never be touched again once it is freed. A kernel that leaves its buffers ends the test at once.

#include <cstddef>
#include <cstdint>

namespace fake_metal {

class GuardedMemory {
 public:
  // Aborts when the system has none.
  explicit GuardedMemory(size_t bytes);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  char* data() const { return data_; }

 private:
  char* mapping_;
  size_t mapped_;
  char* data_;
};

size_t page_bytes();

}  // namespace fake_metal
