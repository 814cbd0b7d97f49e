#pragma once

// Device memory as the stand-in keeps it: each allocation ends at a page that cannot be touched, is
// filled with 0xff (NaN), and can never be touched again once it is freed. A kernel that leaves its
// buffers therefore ends the test at once.

#include <cstddef>
#include <cstdint>
#include <map>

namespace fake_driver {

class DeviceMemory {
 public:
  // 0 when fewer than `bytes` are free.
  uint64_t allocate(size_t bytes);
  // Aborts for what is no live allocation.
  void free(uint64_t address);

  uint64_t used() const { return used_; }
  // Aborts unless [address, address + bytes) lies in one live allocation. `what` names the use.
  void check(uint64_t address, size_t bytes, const char* what) const;
  // Says where an address lies, for the report of an illegal access.
  void describe(uint64_t address, char* text, size_t capacity) const;
  // Aborts when anything is still allocated.
  void require_empty() const;

 private:
  struct Block {
    char* mapping;
    size_t mapped;
    size_t bytes;
    bool live;
  };
  // The block whose mapping holds an address, or null.
  const Block* block_of(uint64_t address, uint64_t* begin) const;

  std::map<uint64_t, Block> blocks_;  // by address; freed ones stay
  uint64_t used_ = 0;
};

}  // namespace fake_driver
