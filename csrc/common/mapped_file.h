#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace forge {

// A file mapped read-only into memory for as long as the object lives.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Gives back the whole pages of a part of a file's mapping; they are read again should anyone ask.
void drop_pages(std::span<const uint8_t> mapped);

}  // namespace forge
