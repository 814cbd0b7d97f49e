#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

namespace forge::cpu {

namespace {

uint64_t page_bytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Returns the size of whole pages for `bytes`.
uint64_t usable_bytes(uint64_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

}  // namespace

Memory::Memory(uint64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const uint64_t usable = usable_bytes(bytes);
  void* address = mmap(nullptr, usable + page_bytes(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(address);
  // A guard page: an access past the end is a fault, not a wrong number.
  mprotect(data_ + usable, page_bytes(), PROT_NONE);
#if defined(MADV_HUGEPAGE)
  madvise(address, usable, MADV_HUGEPAGE);
#endif
}

Memory::~Memory() {
  if (data_) munmap(data_, usable_bytes(bytes_) + page_bytes());
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace forge::cpu
