#include "host_info.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace forge::cpu {

namespace {

uint32_t hardware_threads() { return std::max(1u, std::thread::hardware_concurrency()); }

#if defined(__linux__)

// The value of the first line of /proc/cpuinfo whose key is `key`.
std::string cpuinfo_value(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "";
}

// Cores behind the processors of the affinity mask; hardware threads of one core name the same
// siblings.
uint32_t allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return hardware_threads();
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = std::to_string(cpu);
    cores.insert(siblings);
  }
  return static_cast<uint32_t>(cores.size());
}

// CPUs' worth of time that the cgroup (version 2) grants, or infinity.
double cgroup_cpus() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (file >> quota >> period && quota > 0 && period > 0) return quota / period;
  return INFINITY;
}

#endif

#if defined(__APPLE__)

template <class Number>
Number sysctl_number(const char* name, Number missing) {
  Number value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value > 0 ? value : missing;
}

#endif

}  // namespace

std::string processor_name() {
#if defined(__linux__)
  for (const char* key : {"model name", "Model", "Hardware"}) {
    const std::string name = cpuinfo_value(key);
    if (!name.empty()) return name;
  }
#elif defined(__APPLE__)
  char name[256] = "";
  size_t size = sizeof name;
  if (sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0) == 0) return name;
#endif
#if defined(__aarch64__)
  return "aarch64";
#elif defined(__x86_64__)
  return "x86-64";
#else
  return "unknown processor";
#endif
}

uint32_t usable_cores() {
#if defined(__linux__)
  const double quota = std::ceil(cgroup_cpus());
  const uint32_t cores = std::max(1u, allowed_cores());
  return quota < cores ? static_cast<uint32_t>(quota) : cores;
#elif defined(__APPLE__)
  // Efficiency cores would hold up the others at every barrier.
  return static_cast<uint32_t>(sysctl_number<int32_t>(
      "hw.perflevel0.physicalcpu",
      sysctl_number<int32_t>("hw.physicalcpu", static_cast<int32_t>(hardware_threads()))));
#else
  return hardware_threads();
#endif
}

}  // namespace forge::cpu
