#include "launch_log.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace fake_driver {

namespace {

std::FILE* log_file() {
  static std::FILE* const file = [] {
    const char* path = std::getenv("FORGE_FAKE_CUDA_LAUNCHES");
    return path && *path ? std::fopen(path, "w") : nullptr;
  }();
  return file;
}

}  // namespace

bool is_dry_run() { return log_file() != nullptr; }

void log_kernel(size_t device, const emulator::Kernel& kernel, const emulator::Launch& launch,
                bool is_early, const std::vector<std::string>& arguments) {
  const auto& [x, y, z] = launch.grid;
  std::fprintf(log_file(),
               "{\"device\":%zu,\"kernel\":\"%s\",\"grid\":[%u,%u,%u],\"block\":%u,\"shared\":%zu,"
               "\"early\":%s,\"arguments\":[",
               device, kernel.name.c_str(), x, y, z,
               launch.block.x * launch.block.y * launch.block.z,
               launch.dynamic_shared, is_early ? "true" : "false");
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::fputs(i == 0 ? "\"" : ",\"", log_file());
    for (const unsigned char byte : arguments[i]) std::fprintf(log_file(), "%02x", byte);
    std::fputs("\"", log_file());
  }
  std::fputs("]}\n", log_file());
}

void log_host_function(const void* function) {
  Dl_info info{};
  const bool found = dladdr(function, &info) != 0 && info.dli_fname;
  std::fprintf(log_file(), "{\"library\":\"%s\"}\n", found ? info.dli_fname : "");
}

void log_synchronization() {
  std::fputs("{\"synchronize\":true}\n", log_file());
  std::fflush(log_file());
}

}  // namespace fake_driver
