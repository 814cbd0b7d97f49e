#include "memory.h"

#if defined(_WIN32)
#include "../../common/windows_api.h"
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <new>
#include <utility>

namespace forge::cpu {

namespace {

#if defined(_WIN32)

uint64_t page_bytes() {
  SYSTEM_INFO information = {};
  GetSystemInfo(&information);
  return information.dwPageSize;
}

// Reserves `bytes` and makes the first `usable` accessible; returns null without memory.
void* map_pages(uint64_t usable, uint64_t bytes) {
  void* address = VirtualAlloc(nullptr, bytes, MEM_RESERVE, PAGE_NOACCESS);
  if (!address || VirtualAlloc(address, usable, MEM_COMMIT, PAGE_READWRITE)) return address;
  VirtualFree(address, 0, MEM_RELEASE);
  return nullptr;
}

void unmap_pages(void* address, uint64_t) { VirtualFree(address, 0, MEM_RELEASE); }

#else

uint64_t page_bytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Reserves `bytes` and makes the first `usable` accessible; returns null without memory.
void* map_pages(uint64_t usable, uint64_t bytes) {
  void* address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  mprotect(static_cast<uint8_t*>(address) + usable, bytes - usable, PROT_NONE);
#if defined(MADV_HUGEPAGE)
  madvise(address, usable, MADV_HUGEPAGE);
#endif
  return address;
}

void unmap_pages(void* address, uint64_t bytes) { munmap(address, bytes); }

#endif

// Returns the size of whole pages for `bytes`.
uint64_t usable_bytes(uint64_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

}  // namespace

Memory::Memory(uint64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const uint64_t usable = usable_bytes(bytes);
  // A guard page: an access past the end is a fault, not a wrong number.
  void* address = map_pages(usable, usable + page_bytes());
  if (!address) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(address);
}

Memory::~Memory() {
  if (data_) unmap_pages(data_, usable_bytes(bytes_) + page_bytes());
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace forge::cpu
