#include "mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "error.h"

namespace forge {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(FORGE_IO, "cannot open ", path, ": ", std::strerror(errno));
  struct stat status = {};
  if (fstat(file, &status) != 0) {
    const int code = errno;
    close(file);
    fail(FORGE_IO, "cannot stat ", path, ": ", std::strerror(code));
  }
  if (!S_ISREG(status.st_mode) || status.st_size == 0) {
    close(file);
    fail(FORGE_IO, path, " is ", S_ISREG(status.st_mode) ? "empty" : "not a regular file");
  }
  bytes_ = static_cast<uint64_t>(status.st_size);
  // Shared, so that nobody who reads the pages, such as a GPU's driver, has reason to copy them.
  void* address = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file, 0);
  const int code = errno;
  close(file);
  if (address == MAP_FAILED) fail(FORGE_IO, "cannot map ", path, ": ", std::strerror(code));
  data_ = static_cast<const uint8_t*>(address);
  // The whole file is about to be read: start the disk now rather than page by page.
  madvise(address, bytes_, MADV_WILLNEED);
}

MappedFile::~MappedFile() { munmap(const_cast<uint8_t*>(data_), bytes_); }

void drop_pages(std::span<const uint8_t> mapped) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto data = reinterpret_cast<uintptr_t>(mapped.data());
  const uintptr_t begin = (data + page - 1) / page * page;
  const uintptr_t end = (data + mapped.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace forge
