#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

namespace forge {

// An address range with handled bus errors: see mapped_file.cpp.
struct GuardedRange;

// A file mapped read-only into memory for as long as the object lives.
//
// Truncating or overwriting the file in place also changes the mapping. A read past the new end
// raises SIGBUS; the mapping is then replaced by zeros, so that the reader continues, and check()
// fails from then on. If another file is renamed over it, the mapped content does not change.
// Windows lets nobody write to a mapped file.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

  // Throws FORGE_IO if the file was written to since it was mapped, or a page of it could not be
  // read.
  void check() const;

 private:
  std::string path_;
#if defined(_WIN32)
  void* file_ = nullptr;  // HANDLE
#else
  int file_ = -1;
#endif
  const uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
  int64_t modified_ = 0;  // in the units of the system
  GuardedRange* range_ = nullptr;
};

// Drops the whole pages of a part of a mapped file; a later access reads them again.
void drop_pages(std::span<const uint8_t> mapped);

// Has the system read a part of a mapped file that is about to be used.
void read_ahead(std::span<const uint8_t> mapped);

}  // namespace forge
