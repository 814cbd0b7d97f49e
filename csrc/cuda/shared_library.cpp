#include "shared_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "../common/error.h"
#include "../gpu/environment.h"

namespace forge::cuda {

namespace {

// Stands for the bare name among a query's patterns.
constexpr const char* kSystemLoader = "";
constexpr const char* kNone = "none";

const std::vector<const char*> kToolkitPlaces = {
    "$VIRTUAL_ENV/lib/python3*/site-packages/nvidia/cu13/lib",
    "$VIRTUAL_ENV/lib/python3*/site-packages/nvidia/*/lib",
    "$CONDA_PREFIX/lib/python3*/site-packages/nvidia/cu13/lib",
    "$CONDA_PREFIX/lib/python3*/site-packages/nvidia/*/lib",
    "$CONDA_PREFIX/lib",
    kSystemLoader,
    "$CUDA_PATH/lib64",
    "$CUDA_HOME/lib64",
    "/usr/local/cuda/lib64",
    "/usr/local/cuda-*/lib64",
    "$HOME/.local/lib/python3*/site-packages/nvidia/cu13/lib",
    "$HOME/.local/lib/python3*/site-packages/nvidia/*/lib",
    "/usr/local/lib/python3*/site-packages/nvidia/*/lib",
    "/usr/local/lib/python3*/dist-packages/nvidia/*/lib",
    "/usr/lib/python3*/site-packages/nvidia/*/lib",
};

// Folder of the library that contains this code.
std::string own_folder() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Replaces a leading "$NAME"; empty when the variable is unset.
std::string expand(const std::string& pattern) {
  if (pattern[0] != '$') return pattern;
  if (pattern == "$ORIGIN") return own_folder();
  const size_t end = std::min(pattern.find('/'), pattern.size());
  const std::string value = environment(pattern.substr(1, end - 1).c_str());
  return value.empty() ? "" : value + pattern.substr(end);
}

// Existing paths that match, newer versions first, compared as numbers: 12.10 before 12.9.
std::vector<std::string> matches(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    std::sort(paths.begin(), paths.end(), [](const std::string& a, const std::string& b) {
      return strverscmp(a.c_str(), b.c_str()) > 0;
    });
  }
  globfree(&found);
  return paths;
}

bool is_folder(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

class Search {
 public:
  explicit Search(const LibraryQuery& query) : query_(query) {}

  LibrarySearch run() {
    const std::string chosen = environment(query_.variable);
    if (chosen == kNone) {
      return {nullptr, std::string(query_.variable) + " turns off " + query_.title};
    }
    if (!chosen.empty()) {
      if (is_folder(chosen)) {
        try_folder(chosen);
      } else {
        try_open(chosen);
      }
      if (!found_) context_ = std::string(query_.variable) + " is set to " + chosen + "; ";
    } else {
      for (const char* pattern : query_.patterns) {
        if (found_) break;
        try_place(pattern);
      }
    }
    if (found_) return {std::move(found_), ""};
    return {nullptr, std::string("cannot open ") + query_.title + ": " + context_ + "tried " +
                         tried_ + "; " + query_.advice};
  }

 private:
  void try_place(const std::string& pattern) {
    if (pattern == kSystemLoader) {
      for (const char* name : query_.names) {
        if (!found_) try_open(name);
      }
      return;
    }
    const std::string expanded = expand(pattern);
    if (expanded.empty()) return;
    const std::vector<std::string> folders = matches(expanded);
    if (folders.empty()) note(expanded, "no such folder");
    for (const std::string& folder : folders) {
      if (!found_) try_folder(folder);
    }
  }

  void try_folder(const std::string& folder) {
    bool any = false;
    for (const char* name : query_.names) {
      const std::string path = folder + "/" + name;
      struct stat status = {};
      if (stat(path.c_str(), &status) != 0) continue;
      any = true;
      if (!found_) try_open(path);
    }
    if (!any) note(folder, "not there");
  }

  void try_open(const std::string& path) {
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      found_ = std::make_shared<SharedLibrary>(path, handle);
      return;
    }
    const char* reason = dlerror();
    std::string text = reason ? reason : "unknown reason";
    // The loader repeats the path.
    if (text.starts_with(path + ": ")) text.erase(0, path.size() + 2);
    note(path, text);
  }

  void note(const std::string& place, const std::string& reason) {
    if (!tried_.empty()) tried_ += ", ";
    tried_ += place + " (" + reason + ")";
  }

  const LibraryQuery& query_;
  std::shared_ptr<const SharedLibrary> found_;
  std::string context_;
  std::string tried_;
};

}  // namespace

const LibraryQuery kDriverQuery = {
    "the CUDA driver",
    "FORGE_CUDA_DRIVER",
    {"libcuda.so.1"},
    {kSystemLoader, "/usr/lib/wsl/lib", "/run/opengl-driver/lib"},
    "install NVIDIA's driver, or name its libcuda.so.1 in FORGE_CUDA_DRIVER",
};

const LibraryQuery kNvrtcQuery = {
    "NVRTC, which compiles the kernels",
    "FORGE_NVRTC",
    {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"},
    kToolkitPlaces,
    "install it with: pip install nvidia-cuda-nvrtc (or nvidia-cuda-nvrtc-cu12 for a driver before "
    "580), or name its file or folder in FORGE_NVRTC",
};

const LibraryQuery kCublasLtQuery = {
    "cuBLASLt, which is optional and speeds up long prompts",
    "FORGE_CUBLASLT",
    {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"},
    kToolkitPlaces,
    "install it with: pip install nvidia-cublas, or name its file or folder in FORGE_CUBLASLT",
};

const LibraryQuery kFlashAttnQuery = {
    "libflash_attn, which is optional and speeds up long prompts",
    "FORGE_FLASH_ATTN",
    {"libflash_attn.so"},
    {"$ORIGIN"},
    "deno task build makes it where nvcc is, or name its file or folder in FORGE_FLASH_ATTN",
};

LibraryQuery for_driver(LibraryQuery query, int driver_version) {
  const int major = driver_version / 1000;
  std::erase_if(query.names, [major](const char* name) {
    const char* version = std::strstr(name, ".so.") + std::strlen(".so.");
    return std::atoi(version) > major;
  });
  return query;
}

void* SharedLibrary::find(const char* symbol) const { return dlsym(handle_, symbol); }

void* SharedLibrary::require_symbol(const char* symbol) const {
  void* address = find(symbol);
  if (!address) fail(FORGE_DEVICE_FAILED, path_, " has no function ", symbol, ": it is too old");
  return address;
}

void SharedLibrary::open_siblings(const char* pattern) const {
  const size_t slash = path_.rfind('/');
  if (slash == std::string::npos) return;
  for (const std::string& path : matches(path_.substr(0, slash + 1) + pattern)) {
    dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
}

LibrarySearch find_library(const LibraryQuery& query) { return Search(query).run(); }

}  // namespace forge::cuda
