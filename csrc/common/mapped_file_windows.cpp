#if defined(_WIN32)

#include "windows_api.h"

#include <system_error>

#include "error.h"
#include "mapped_file.h"

namespace forge {

namespace {

std::string last_error() {
  return std::system_category().message(static_cast<int>(GetLastError()));
}

int64_t modification_time(const BY_HANDLE_FILE_INFORMATION& information) {
  const FILETIME time = information.ftLastWriteTime;
  return static_cast<int64_t>(uint64_t{time.dwHighDateTime} << 32 | time.dwLowDateTime);
}

uint64_t size_of(const BY_HANDLE_FILE_INFORMATION& information) {
  return uint64_t{information.nFileSizeHigh} << 32 | information.nFileSizeLow;
}

}  // namespace

// Without FILE_SHARE_WRITE nobody can write to the file while it is open, so no reader sees another
// content or a missing page; a failing disk ends the process.
MappedFile::MappedFile(const std::string& path) : path_(path) {
  const HANDLE file =
      CreateFileW(wide(path).c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, nullptr,
                  OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
  if (file == INVALID_HANDLE_VALUE) fail(FORGE_IO, "cannot open ", path, ": ", last_error());
  const auto close_and_fail = [&](const auto&... parts) {
    CloseHandle(file);
    fail(FORGE_IO, parts...);
  };
  BY_HANDLE_FILE_INFORMATION information = {};
  if (GetFileType(file) != FILE_TYPE_DISK || !GetFileInformationByHandle(file, &information)) {
    close_and_fail(path, " is not a regular file");
  }
  bytes_ = size_of(information);
  modified_ = modification_time(information);
  if (bytes_ == 0) close_and_fail(path, " is empty");
  const HANDLE mapping = CreateFileMappingW(file, nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (!mapping) close_and_fail("cannot map ", path, ": ", last_error());
  const void* address = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0);
  const std::string reason = address ? "" : last_error();
  CloseHandle(mapping);  // the view keeps it
  if (!address) close_and_fail("cannot map ", path, ": ", reason);
  file_ = file;
  data_ = static_cast<const uint8_t*>(address);
  // The whole file is about to be read: start the disk now rather than page by page.
  read_ahead({data_, static_cast<size_t>(bytes_)});
}

MappedFile::~MappedFile() {
  UnmapViewOfFile(data_);
  CloseHandle(file_);
}

void MappedFile::check() const {
  BY_HANDLE_FILE_INFORMATION information = {};
  if (!GetFileInformationByHandle(file_, &information) || size_of(information) != bytes_ ||
      modification_time(information) != modified_) {
    fail(FORGE_IO, path_, " was written to while it was in use; load the model again");
  }
}

// Pages that are not locked leave the working set.
void drop_pages(std::span<const uint8_t> mapped) {
  VirtualUnlock(const_cast<uint8_t*>(mapped.data()), mapped.size());
}

void read_ahead(std::span<const uint8_t> mapped) {
  WIN32_MEMORY_RANGE_ENTRY range = {const_cast<uint8_t*>(mapped.data()), mapped.size()};
  PrefetchVirtualMemory(GetCurrentProcess(), 1, &range, 0);
}

}  // namespace forge

#endif
