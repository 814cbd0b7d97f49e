#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

namespace forge {

// An address range whose bus errors are handled: see mapped_file.cpp.
struct GuardedRange;

// A file mapped read-only into memory for as long as the object lives.
//
// A file that is truncated or overwritten in place takes its mapping with it. Reading past the new
// end raises SIGBUS; the mapping is then replaced by zeros, so that the reader continues, and
// check() fails from then on. A file that is replaced by renaming another one over it keeps its
// contents for as long as it is mapped.
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
  int file_ = -1;
  const uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
  int64_t modified_ = 0;  // nanoseconds since 1970
  GuardedRange* range_ = nullptr;
};

// Gives back the whole pages of a part of a file's mapping; they are read again should anyone ask.
void drop_pages(std::span<const uint8_t> mapped);

}  // namespace forge
