#pragma once

// Finding and opening of NVIDIA's libraries at run time: forge is built without them and runs on
// machines without them.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace forge::cuda {

// An open library. It stays open for the life of the process, as driver libraries must.
class SharedLibrary {
 public:
  SharedLibrary(std::string path, void* handle) : path_(std::move(path)), handle_(handle) {}

  // Path of the library, with / between folders, or the bare name that the system's loader
  // resolved.
  const std::string& path() const { return path_; }
  // Returns the address of a symbol; null if the library lacks it.
  void* find(const char* symbol) const;
  // The same, but throws FORGE_DEVICE_FAILED with the names of library and symbol.
  void* require_symbol(const char* symbol) const;
  // Opens the matching files in this library's folder, since the library opens them by name only.
  void open_siblings(const char* pattern) const;

 private:
  std::string path_;
  void* handle_;
};

// Names of a library, and folders to search besides the system loader's.
struct LibraryQuery {
  const char* title;     // as in "the CUDA driver"
  // An environment variable with the file or its folder, which takes precedence; "none": no search.
  const char* variable;
  std::vector<const char*> names;     // file names, in order of preference
  // Glob patterns of folders; "$NAME" at the beginning is a variable, "$ORIGIN" this library's
  // folder.
  std::vector<const char*> patterns;
  const char* advice;                 // how to get it
};

extern const LibraryQuery kDriverQuery;
extern const LibraryQuery kNvrtcQuery;
extern const LibraryQuery kCublasLtQuery;
extern const LibraryQuery kNcclQuery;
extern const LibraryQuery kFlashAttnQuery;

// Returns the query without versions whose machine code a driver of CUDA `driver_version` cannot
// load.
LibraryQuery for_driver(LibraryQuery query, int driver_version);

// Result of a search.
struct LibrarySearch {
  std::shared_ptr<const SharedLibrary> library;  // null if not found
  std::string problem;                           // then: paths tried, and advice
};

// Searches only the path of the variable if it is set; else the folders of Python packages, the
// system's loader, and the folders of CUDA toolkits, in this order.
LibrarySearch find_library(const LibraryQuery& query);

}  // namespace forge::cuda
