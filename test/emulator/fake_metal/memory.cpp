#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "options.h"

namespace fake_metal {

namespace {

// The alignment of buffers that kernels may assume, sufficient for any vector load.
constexpr size_t kAlignment = 16;

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

GuardedMemory::GuardedMemory(size_t bytes) {
  const size_t page = page_bytes(), usable = round_up(bytes, page);
  mapped_ = usable + 2 * page;
  void* mapping =
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) misuse("no %zu bytes of memory", bytes);
  mapping_ = static_cast<char*>(mapping);
  mprotect(mapping_, page, PROT_NONE);
  mprotect(mapping_ + page + usable, page, PROT_NONE);
  data_ = mapping_ + page + usable - round_up(bytes, kAlignment);
  std::memset(mapping_ + page, 0xff, usable);
}

GuardedMemory::~GuardedMemory() {
  // The addresses are never reused, and hold no memory.
  mmap(mapping_, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
       0);
}

}  // namespace fake_metal
