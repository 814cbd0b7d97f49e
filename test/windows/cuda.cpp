// Compiled several times for `windows_test.ts`:
//
// - with STAND_IN_ID=N: a DLL whose function `id` returns N;
// - with STAND_IN_DRIVER: an nvcuda.dll with one GPU, which refuses all but questions about it;
// - else a program. `cuda find QUERY VERSION` prints the library that forge's search finds for a
//   driver of that version, and its id, or the problem; `cuda devices DLL` prints the devices of
//   libforge_cuda.dll.
#if defined(STAND_IN_ID)

extern "C" __declspec(dllexport) int id() { return STAND_IN_ID; }

#elif defined(STAND_IN_DRIVER)

#include <cstdio>
#include <cstring>

#include "../../csrc/cuda/driver_api.h"

using namespace forge::cuda;

namespace {

Result answer(const char* function, void* a, uintptr_t b) {
  const auto is = [&](const char* name) { return std::strcmp(function, name) == 0; };
  const auto attribute = static_cast<DeviceAttribute>(b);
  if (is("cuInit")) return kSuccess;
  if (is("cuDeviceGetName")) {
    std::snprintf(static_cast<char*>(a), b, "Stand-in");
  } else if (is("cuDeviceTotalMem_v2")) {
    *static_cast<size_t*>(a) = size_t{16} << 30;
  } else if (is("cuDriverGetVersion")) {
    *static_cast<int*>(a) = 13000;
  } else if (is("cuDeviceGetCount")) {
    *static_cast<int*>(a) = 1;
  } else if (is("cuDeviceGet")) {
    *static_cast<int*>(a) = 0;
  } else if (is("cuDeviceGetAttribute")) {
    *static_cast<int*>(a) = attribute == DeviceAttribute::compute_major ? 9 : 0;
  } else {
    return kNotInitialized;
  }
  return kSuccess;
}

}  // namespace

// The calling convention of Windows lets a caller pass more arguments than a function has.
#define FUNCTION(member, symbol, parameters)                                \
  extern "C" __declspec(dllexport) Result symbol(void* a, uintptr_t b) {    \
    return answer(#symbol, a, b);                                           \
  }
FORGE_DRIVER_FUNCTIONS(FUNCTION)

#else

#include <windows.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../../csrc/cuda/shared_library.h"

using namespace forge::cuda;

namespace {

int find(const char* name, const char* version) {
  const LibraryQuery& query = std::strcmp(name, "nvrtc") == 0 ? kNvrtcQuery : kCublasLtQuery;
  const LibrarySearch search = find_library(for_driver(query, std::atoi(version)));
  if (!search.library) {
    std::printf("%s\n", search.problem.c_str());
    return 0;
  }
  const auto id = reinterpret_cast<int (*)()>(search.library->require_symbol("id"));
  std::printf("%s %d\n", search.library->path().c_str(), id());
  return 0;
}

int devices(const char* path) {
  const HMODULE library = LoadLibraryA(path);
  if (!library) return 1;
  const auto list = reinterpret_cast<int (*)(char*, uint64_t)>(
      reinterpret_cast<void*>(GetProcAddress(library, "forge_list_devices")));
  char text[4096] = "";
  if (list(text, sizeof text) != 0) return 1;
  std::printf("%s\n", text);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 4) return find(arguments[2], arguments[3]);
  return count == 3 ? devices(arguments[2]) : 2;
}

#endif
