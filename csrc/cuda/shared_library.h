#pragma once

// NVIDIA's libraries, searched and opened at run time: forge is built without them and runs on
// machines that lack them.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace forge::cuda {

// An open library; it stays open for the life of the process, as driver libraries must.
class SharedLibrary {
 public:
  SharedLibrary(std::string path, void* handle) : path_(std::move(path)), handle_(handle) {}

  // Where it was found: a path, or the bare name that the system's loader knew.
  const std::string& path() const { return path_; }
  // The address of a symbol; null when the library has none.
  void* find(const char* symbol) const;
  // The same; a FORGE_DEVICE_FAILED error that names library and symbol when there is none.
  void* require_symbol(const char* symbol) const;
  // Opens what this library will look for by name only, from the folder it lies in.
  void open_siblings(const char* pattern) const;

 private:
  std::string path_;
  void* handle_;
};

// What a library is called, and where it may be besides the system loader's own places.
struct LibraryQuery {
  const char* title;     // as in "the CUDA driver"
  // An environment variable that names the file or its folder, and wins; "none": look nowhere.
  const char* variable;
  std::vector<const char*> names;     // file names, the preferred first
  // Glob patterns of folders; "$NAME" at the beginning is a variable, "$ORIGIN" this library's
  // folder.
  std::vector<const char*> patterns;
  const char* advice;                 // how to get it
};

extern const LibraryQuery kDriverQuery;
extern const LibraryQuery kNvrtcQuery;
extern const LibraryQuery kCublasLtQuery;
extern const LibraryQuery kFlashAttnQuery;

// The same without the versions whose machine code a driver of CUDA `driver_version` does not load.
LibraryQuery for_driver(LibraryQuery query, int driver_version);

// What a search came to.
struct LibrarySearch {
  std::shared_ptr<const SharedLibrary> library;  // null when there is none
  std::string problem;                           // then: what was tried, and what to do
};

// Looks for a library: first where its variable says (and then nowhere else), then in the folders
// of Python packages, then as the system's loader does, then in the places of CUDA toolkits.
LibrarySearch find_library(const LibraryQuery& query);

}  // namespace forge::cuda
