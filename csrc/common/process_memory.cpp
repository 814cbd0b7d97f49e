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
#elif defined(_WIN32)
#include "windows_api.h"

#include <psapi.h>
#endif

namespace forge {

#if defined(__linux__)

namespace {

// Returns the first number of a file, or UINT64_MAX. A group without a limit says "max" (version 2)
// or a number beyond any memory (version 1).
uint64_t number_in(const std::string& path) {
  uint64_t number = 0;
  std::ifstream file(path);
  return file >> number ? number : UINT64_MAX;
}

// Returns the number after a key at the beginning of a line, or 0.
uint64_t number_after(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    uint64_t number = 0;
    if (word == key && file >> number) return number;
    std::getline(file, word);
  }
  return 0;
}

// The files of a control group, by version.
struct GroupFiles {
  const char* root;
  const char* limit;
  const char* usage;
  const char* cached;  // key in memory.stat of what can be dropped of files
};

// Memory that a control group grants, and what is left of it.
struct GroupMemory {
  uint64_t limit = UINT64_MAX;
  uint64_t left = UINT64_MAX;
};

// Takes the least of a control group and of those around it.
void take_least(const GroupFiles& files, std::string group, GroupMemory& least) {
  for (;;) {
    const std::string folder = files.root + group + "/";
    const uint64_t limit = number_in(folder + files.limit);
    if (limit != UINT64_MAX) {
      const uint64_t usage = number_in(folder + files.usage);
      const uint64_t cached = number_after(folder + "memory.stat", files.cached);
      const uint64_t taken = usage - std::min(usage, cached);
      least.limit = std::min(least.limit, limit);
      least.left = std::min(least.left, limit - std::min(limit, taken));
    }
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return;
    group.resize(slash);
  }
}

// The memory that control groups grant this process. /proc/self/cgroup has a line for each
// hierarchy: "0::/path" in version 2, "4:memory:/path" in version 1.
GroupMemory group_memory() {
  GroupMemory least;
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
      take_least({"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}, group, least);
    } else if (controllers.find(",memory,") != std::string::npos) {
      take_least({"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                  "total_inactive_file"},
                 group, least);
    }
  }
  return least;
}

}  // namespace

// getrusage would count what the process held before it became this program.
uint64_t peak_resident_bytes() {
  return number_after("/proc/self/status", "VmHWM:") * 1024;
}

uint64_t host_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page <= 0) return 0;
  return std::min(static_cast<uint64_t>(pages) * static_cast<uint64_t>(page), group_memory().limit);
}

uint64_t free_memory_bytes() {
  return std::min(number_after("/proc/meminfo", "MemAvailable:") * 1024, group_memory().left);
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

// macOS compresses memory and swaps.
uint64_t free_memory_bytes() { return host_memory_bytes(); }

#elif defined(_WIN32)

uint64_t peak_resident_bytes() {
  PROCESS_MEMORY_COUNTERS counters = {};
  counters.cb = sizeof counters;
  return GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof counters)
             ? counters.PeakWorkingSetSize
             : 0;
}

uint64_t host_memory_bytes() {
  MEMORYSTATUSEX status = {};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) ? status.ullTotalPhys : 0;
}

uint64_t free_memory_bytes() {
  MEMORYSTATUSEX status = {};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) ? status.ullAvailPhys : 0;
}

#else

uint64_t peak_resident_bytes() { return 0; }

uint64_t host_memory_bytes() { return 0; }

uint64_t free_memory_bytes() { return 0; }

#endif

}  // namespace forge
