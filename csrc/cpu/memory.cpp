#include "memory.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace forge::cpu {

Memory::Memory(uint64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
  madvise(address, bytes, MADV_HUGEPAGE);
#endif
  data_ = static_cast<uint8_t*>(address);
}

Memory::~Memory() {
  if (data_) munmap(data_, bytes_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace forge::cpu
