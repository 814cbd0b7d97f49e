#include "shared_library.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "../common/error.h"
#include "../gpu/environment.h"
#if defined(_WIN32)
#include "../common/windows_api.h"
#else
#include <dlfcn.h>
#endif

namespace forge::cuda {

namespace {

// Stands for the bare name among a query's patterns.
constexpr const char* kSystemLoader = "";
constexpr const char* kNone = "none";

#if defined(_WIN32)
// Toolkits since version 13 have their libraries in bin/x64. NVIDIA's installer sets CUDA_PATH.
const std::vector<const char*> kToolkitPlaces = {
    "$VIRTUAL_ENV/Lib/site-packages/nvidia/cu13/bin/x86_64",
    "$VIRTUAL_ENV/Lib/site-packages/nvidia/*/bin",
    "$CONDA_PREFIX/Lib/site-packages/nvidia/cu13/bin/x86_64",
    "$CONDA_PREFIX/Lib/site-packages/nvidia/*/bin",
    "$CONDA_PREFIX/bin",
    "$CUDA_PATH/bin/x64",
    "$CUDA_PATH/bin",
    kSystemLoader,
    "$ProgramFiles/NVIDIA GPU Computing Toolkit/CUDA/v*/bin/x64",
    "$ProgramFiles/NVIDIA GPU Computing Toolkit/CUDA/v*/bin",
    "$LOCALAPPDATA/Programs/Python/Python3*/Lib/site-packages/nvidia/cu13/bin/x86_64",
    "$LOCALAPPDATA/Programs/Python/Python3*/Lib/site-packages/nvidia/*/bin",
};
#else
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

#endif

#if defined(_WIN32)

// Path of the library that contains this code.
std::string own_path() {
  HMODULE self = nullptr;
  const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
                      GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  if (!GetModuleHandleExW(flags, reinterpret_cast<LPCWSTR>(&own_path), &self)) return "";
  std::wstring path(32768, L'\0');
  path.resize(GetModuleFileNameW(self, path.data(), static_cast<DWORD>(path.size())));
  return to_text(path);
}

// Opens a library by its path, whose folder also has those it needs, or by its bare name; null,
// with the reason, if the system refuses.
void* open_library(const std::string& path, std::string& reason, bool = false) {
  const bool has_folder = path.find('/') != std::string::npos;
  const DWORD flags = LOAD_LIBRARY_SEARCH_DEFAULT_DIRS |
                      (has_folder ? DWORD{LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR} : DWORD{0});
  const std::filesystem::path native = to_path(path).make_preferred();
  const HMODULE handle = LoadLibraryExW(native.c_str(), nullptr, flags);
  if (!handle) {
    reason = std::system_category().message(static_cast<int>(GetLastError()));
  }
  return handle;
}

void* find_symbol(void* handle, const char* symbol) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(handle), symbol));
}

#else

std::string own_path() {
  Dl_info info = {};
  return dladdr(reinterpret_cast<const void*>(&own_path), &info) == 0 ? "" : info.dli_fname;
}

void* open_library(const std::string& path, std::string& reason, bool is_global = false) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | (is_global ? RTLD_GLOBAL : RTLD_LOCAL));
  if (!handle) {
    const char* text = dlerror();
    reason = text ? text : "unknown reason";
    // The loader repeats the path.
    if (reason.starts_with(path + ": ")) reason.erase(0, path.size() + 2);
  }
  return handle;
}

void* find_symbol(void* handle, const char* symbol) { return dlsym(handle, symbol); }

#endif

// Folder of the library that contains this code.
std::string own_folder() {
  const std::string path = own_path();
  const size_t slash = path.rfind('/');
  if (path.empty()) return "";
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Path in a variable, with / between folders on Windows too.
std::string path_variable(const char* name) { return to_text(to_path(environment(name))); }

// Replaces a leading "$NAME"; empty when the variable is unset.
std::string expand(const std::string& pattern) {
  if (pattern[0] != '$') return pattern;
  if (pattern == "$ORIGIN") return own_folder();
  const size_t end = std::min(pattern.find('/'), pattern.size());
  const std::string value = path_variable(pattern.substr(1, end - 1).c_str());
  return value.empty() ? "" : value + pattern.substr(end);
}

// True if `a` is an older version than `b`: numbers in them are compared as numbers, 12.9 and
// 12.10.
bool is_older(std::string_view a, std::string_view b) {
  size_t i = 0, j = 0;
  const auto is_digit = [](std::string_view text, size_t at) {
    return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at]));
  };
  const auto number = [&](std::string_view text, size_t& at) {
    uint64_t value = 0;
    for (; is_digit(text, at); ++at) value = value * 10 + static_cast<uint64_t>(text[at] - '0');
    return value;
  };
  while (i < a.size() && j < b.size()) {
    if (is_digit(a, i) && is_digit(b, j)) {
      const uint64_t x = number(a, i), y = number(b, j);
      if (x != y) return x < y;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

// True if a name matches a pattern, whose stars stand for any text.
bool is_match(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*') {
    return !name.empty() && name[0] == pattern[0] && is_match(name.substr(1), pattern.substr(1));
  }
  for (size_t i = 0; i <= name.size(); ++i) {
    if (is_match(name.substr(i), pattern.substr(1))) return true;
  }
  return false;
}

// Existing paths that match, newer versions first.
std::vector<std::string> matches(const std::string& pattern) {
  std::vector<std::string> found = {""};
  for (size_t begin = 0; begin < pattern.size();) {
    const size_t end = std::min(pattern.find('/', begin), pattern.size());
    const std::string part = pattern.substr(begin, end - begin);
    const std::string slash = end < pattern.size() ? "/" : "";
    std::vector<std::string> next;
    for (const std::string& folder : found) {
      if (part.find('*') == std::string::npos) {
        next.push_back(folder + part + slash);
        continue;
      }
      std::error_code error;
      std::filesystem::directory_iterator entry(to_path(folder), error);
      for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
        const std::string name = to_text(entry->path().filename());
        if (is_match(name, part)) next.push_back(folder + name + slash);
      }
    }
    found = std::move(next);
    begin = end + 1;
  }
  std::erase_if(found, [](const std::string& path) {
    std::error_code error;
    return !std::filesystem::exists(to_path(path), error);
  });
  std::sort(found.begin(), found.end(),
            [](const std::string& a, const std::string& b) { return is_older(b, a); });
  return found;
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(to_path(path), error);
}

class Search {
 public:
  explicit Search(const LibraryQuery& query) : query_(query) {}

  LibrarySearch run() {
    const std::string chosen = path_variable(query_.variable);
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
      std::error_code error;
      if (!std::filesystem::exists(to_path(path), error)) continue;
      any = true;
      if (!found_) try_open(path);
    }
    if (!any) note(folder, "not there");
  }

  void try_open(const std::string& path) {
    std::string reason;
    if (void* handle = open_library(path, reason)) {
      found_ = std::make_shared<SharedLibrary>(path, handle);
      return;
    }
    note(path, reason);
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
#if defined(_WIN32)
    {"nvcuda.dll"},
    {kSystemLoader},
    "install NVIDIA's driver, or name its nvcuda.dll in FORGE_CUDA_DRIVER",
#else
    {"libcuda.so.1"},
    {kSystemLoader, "/usr/lib/wsl/lib", "/run/opengl-driver/lib"},
    "install NVIDIA's driver, or name its libcuda.so.1 in FORGE_CUDA_DRIVER",
#endif
};

const LibraryQuery kNvrtcQuery = {
    "NVRTC, which compiles the kernels",
    "FORGE_NVRTC",
#if defined(_WIN32)
    {"nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"},
#else
    {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"},
#endif
    kToolkitPlaces,
    "install it with: pip install nvidia-cuda-nvrtc (or nvidia-cuda-nvrtc-cu12 for a driver before "
    "580), or name its file or folder in FORGE_NVRTC",
};

const LibraryQuery kCublasLtQuery = {
    "cuBLASLt, which is optional and speeds up long prompts",
    "FORGE_CUBLASLT",
#if defined(_WIN32)
    {"cublasLt64_13.dll", "cublasLt64_12.dll", "cublasLt64_11.dll"},
#else
    {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"},
#endif
    kToolkitPlaces,
    "install it with: pip install nvidia-cublas, or name its file or folder in FORGE_CUBLASLT",
};

const LibraryQuery kNcclQuery = {
    "NCCL, which devices that divide a model need",
    "FORGE_NCCL",
    {"libnccl.so.2"},
    kToolkitPlaces,
    "install it with: pip install nvidia-nccl-cu13 (or -cu12), or name its file or folder in "
    "FORGE_NCCL",
};

const LibraryQuery kFlashAttnQuery = {
    "libflash_attn, which is optional and speeds up long prompts",
    "FORGE_FLASH_ATTN",
#if defined(_WIN32)
    {"flash_attn.dll"},
#else
    {"libflash_attn.so"},
#endif
    {"$ORIGIN"},
    "deno task build makes it where nvcc is, or name its file or folder in FORGE_FLASH_ATTN",
};

namespace {

// Major version of CUDA in a file name: 12 in libnvrtc.so.12, nvrtc64_120_0.dll and
// cublasLt64_12.dll.
int major_version(std::string_view name) {
  const bool is_dll = name.ends_with(".dll");
  const std::string_view mark = is_dll ? "64_" : ".so.";
  const int number = std::atoi(name.data() + name.find(mark) + mark.size());
  return number >= 100 ? number / 10 : number;
}

}  // namespace

LibraryQuery for_driver(LibraryQuery query, int driver_version) {
  const int major = driver_version / 1000;
  std::erase_if(query.names, [major](const char* name) { return major_version(name) > major; });
  return query;
}

void* SharedLibrary::find(const char* symbol) const { return find_symbol(handle_, symbol); }

void* SharedLibrary::require_symbol(const char* symbol) const {
  void* address = find(symbol);
  if (!address) fail(FORGE_DEVICE_FAILED, path_, " has no function ", symbol, ": it is too old");
  return address;
}

void SharedLibrary::open_siblings(const char* pattern) const {
  const size_t slash = path_.rfind('/');
  if (slash == std::string::npos) return;
  for (const std::string& path : matches(path_.substr(0, slash + 1) + pattern)) {
    std::string reason;
    open_library(path, reason, true);
  }
}

LibrarySearch find_library(const LibraryQuery& query) { return Search(query).run(); }

}  // namespace forge::cuda
