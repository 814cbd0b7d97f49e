#include "device_memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstring>

#include "launch_log.h"
#include "options.h"

namespace fake_driver {

namespace {

constexpr size_t kPage = 4096;
// The alignment that the driver guarantees.
constexpr size_t kAlignment = 256;

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

uint64_t DeviceMemory::allocate(size_t bytes) {
  if (bytes == 0) misuse("cuMemAlloc of 0 bytes");
  if (used_ + bytes > options().memory_mib << 20) return 0;
  const size_t usable = round_up(bytes, kPage);
  const size_t mapped = usable + 2 * kPage;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (is_dry_run() ? MAP_NORESERVE : 0);
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapping == MAP_FAILED) return 0;
  char* first = static_cast<char*>(mapping);
  mprotect(first, kPage, PROT_NONE);
  mprotect(first + kPage + usable, kPage, PROT_NONE);
  // As close to the guard page after it as the alignment allows.
  char* begin = first + kPage + usable - round_up(bytes, kAlignment);
  if (!is_dry_run()) std::memset(first + kPage, 0xff, usable);
  const auto address = reinterpret_cast<uint64_t>(begin);
  blocks_[address] = {first, mapped, bytes, true};
  used_ += bytes;
  return address;
}

void DeviceMemory::free(uint64_t address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) {
    misuse("cuMemFree of %#llx, which was never allocated",
           static_cast<unsigned long long>(address));
  }
  Block& block = found->second;
  if (!block.live) misuse("cuMemFree of %zu bytes that are free already", block.bytes);
  block.live = false;
  used_ -= block.bytes;
  // The addresses are never reused, and hold no memory.
  mmap(block.mapping, block.mapped, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

const DeviceMemory::Block* DeviceMemory::block_of(uint64_t address, uint64_t* begin) const {
  const auto holds = [&](const auto& place) {
    const auto mapping = reinterpret_cast<uint64_t>(place->second.mapping);
    return mapping <= address && address < mapping + place->second.mapped;
  };
  // The address may lie in the page before the first byte of a block.
  auto found = blocks_.upper_bound(address);
  if (found == blocks_.end() || !holds(found)) {
    if (found == blocks_.begin() || !holds(--found)) return nullptr;
  }
  *begin = found->first;
  return &found->second;
}

void DeviceMemory::check(uint64_t address, size_t bytes, const char* what) const {
  uint64_t begin = 0;
  const Block* block = block_of(address, &begin);
  const bool inside = block && block->live && address >= begin && bytes <= block->bytes &&
                      address - begin <= block->bytes - bytes;
  if (inside) return;
  char place[128];
  describe(address, place, sizeof place);
  misuse("%s of %zu bytes at %s", what, bytes, place);
}

bool DeviceMemory::holds(uint64_t address) const {
  uint64_t begin = 0;
  return block_of(address, &begin) != nullptr;
}

void DeviceMemory::describe(uint64_t address, char* text, size_t capacity) const {
  uint64_t begin = 0;
  const Block* block = block_of(address, &begin);
  if (!block) {
    std::snprintf(text, capacity, "%#llx, which is no device memory",
                  static_cast<unsigned long long>(address));
  } else {
    std::snprintf(text, capacity, "byte %lld of %s allocation of %zu bytes",
                  static_cast<long long>(address - begin), block->live ? "an" : "a freed",
                  block->bytes);
  }
}

void DeviceMemory::require_empty() const {
  for (const auto& [address, block] : blocks_) {
    if (block.live) {
      misuse("the context ends with %llu bytes allocated, one piece of %zu bytes among them",
             static_cast<unsigned long long>(used_), block.bytes);
    }
  }
}

}  // namespace fake_driver
