#include "process_memory.h"

#include <algorithm>
#include <cstdint>

#if defined(__linux__)
#include <unistd.h>

#include <fstream>
#include <string>
#elif defined(__APPLE__)
#include <sys/resource.h>
#include <sys/sysctl.h>
#endif

namespace forge {

#if defined(__linux__)

namespace {

// The smallest limit in the files named `limit` of a control group and of those around it.
// A group without a limit says "max" (version 2) or a number beyond any memory (version 1).
uint64_t least_limit(const std::string& root, std::string group, const char* limit) {
  uint64_t least = UINT64_MAX;
  for (;;) {
    uint64_t bytes = 0;
    std::ifstream file(root + group + "/" + limit);
    if (file >> bytes) least = std::min(least, bytes);
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return least;
    group.resize(slash);
  }
}

// The memory that control groups grant this process. /proc/self/cgroup has a line for each
// hierarchy: "0::/path" in version 2, "4:memory:/path" in version 1.
uint64_t group_limit() {
  uint64_t least = UINT64_MAX;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t names = line.find(':');
    const size_t path = names == std::string::npos ? names : line.find(':', names + 1);
    if (path == std::string::npos) continue;
    std::string controllers = line.substr(names, path - names);
    controllers.front() = ',';
    controllers.push_back(',');
    const std::string group = line.substr(path + 1);
    if (controllers == ",,") {
      least = std::min(least, least_limit("/sys/fs/cgroup", group, "memory.max"));
    } else if (controllers.find(",memory,") != std::string::npos) {
      const std::string root = "/sys/fs/cgroup/memory";
      least = std::min(least, least_limit(root, group, "memory.limit_in_bytes"));
    }
  }
  return least;
}

}  // namespace

// getrusage would count what the process held before it became this program.
uint64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    uint64_t kilobytes = 0;
    if (key == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
    std::getline(status, key);
  }
  return 0;
}

uint64_t host_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page <= 0) return 0;
  return std::min(static_cast<uint64_t>(pages) * static_cast<uint64_t>(page), group_limit());
}

#elif defined(__APPLE__)

uint64_t peak_resident_bytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<uint64_t>(usage.ru_maxrss) : 0;
}

uint64_t host_memory_bytes() {
  uint64_t bytes = 0;
  size_t size = sizeof bytes;
  return sysctlbyname("hw.memsize", &bytes, &size, nullptr, 0) == 0 ? bytes : 0;
}

#else

uint64_t peak_resident_bytes() { return 0; }

uint64_t host_memory_bytes() { return 0; }

#endif

}  // namespace forge
