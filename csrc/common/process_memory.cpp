#include "process_memory.h"

#if defined(__linux__)
#include <fstream>
#include <string>
#elif defined(__APPLE__)
#include <sys/resource.h>
#endif

namespace forge {

#if defined(__linux__)

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

#elif defined(__APPLE__)

uint64_t peak_resident_bytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<uint64_t>(usage.ru_maxrss) : 0;
}

#else

uint64_t peak_resident_bytes() { return 0; }

#endif

}  // namespace forge
