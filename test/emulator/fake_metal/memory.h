#pragma once

// Memory of buffers: each ends at an inaccessible page, is filled with 0xff (NaN), and becomes
// inaccessible forever when it is freed. An access outside of a buffer ends the test at once.

#include <cstddef>
#include <cstdint>

namespace fake_metal {

class GuardedMemory {
 public:
  // Aborts if the system is out of memory.
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
