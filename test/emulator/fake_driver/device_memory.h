#pragma once

// Device memory of the stand-in: each allocation ends at an inaccessible page, is filled with 0xff
// (NaN), and becomes inaccessible forever when it is freed. An access outside of a kernel's buffers
// therefore ends the test at once.

#include <cstddef>
#include <cstdint>
#include <map>

namespace fake_driver {

class DeviceMemory {
 public:
  // Returns 0 if fewer than `bytes` are free.
  uint64_t allocate(size_t bytes);
  // Aborts if `address` is not a live allocation.
  void free(uint64_t address);

  uint64_t used() const { return used_; }
  // Aborts unless [address, address + bytes) lies in one live allocation. `what` names the use.
  void check(uint64_t address, size_t bytes, const char* what) const;
  // Describes an address for the report of an illegal access.
  bool holds(uint64_t address) const;
  void describe(uint64_t address, char* text, size_t capacity) const;
  // Aborts if anything is still allocated.
  void require_empty() const;

 private:
  struct Block {
    char* mapping;
    size_t mapped;
    size_t bytes;
    bool live;
  };
  // The block whose mapping contains an address, or null.
  const Block* block_of(uint64_t address, uint64_t* begin) const;

  std::map<uint64_t, Block> blocks_;  // by address; freed ones stay
  uint64_t used_ = 0;
};

}  // namespace fake_driver
