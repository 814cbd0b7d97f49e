#include "processor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <thread>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(_WIN32)
#include <cpuid.h>

#include <vector>

#include "../../common/windows_api.h"
#endif

#include "memory.h"
#include "topology.h"

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

// Returns the number of CPUs that the cgroup (version 2) grants, or infinity.
double cgroup_cpus() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (file >> quota >> period && quota > 0 && period > 0) return quota / period;
  return INFINITY;
}

#endif

#if defined(_WIN32)

// Returns the number of cores that have a hardware thread in the affinity mask, or 0.
uint32_t allowed_cores() {
  DWORD bytes = 0;
  GetLogicalProcessorInformation(nullptr, &bytes);
  std::vector<SYSTEM_LOGICAL_PROCESSOR_INFORMATION> entries(
      bytes / sizeof(SYSTEM_LOGICAL_PROCESSOR_INFORMATION));
  DWORD_PTR allowed = 0, system = 0;
  if (entries.empty() || !GetLogicalProcessorInformation(entries.data(), &bytes) ||
      !GetProcessAffinityMask(GetCurrentProcess(), &allowed, &system)) {
    return 0;
  }
  return static_cast<uint32_t>(std::count_if(entries.begin(), entries.end(), [&](const auto& each) {
    return each.Relationship == RelationProcessorCore && (each.ProcessorMask & allowed) != 0;
  }));
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

constexpr uint64_t kPiece = 1 << 20;
constexpr uint32_t kPieces = 256;
constexpr int kRounds = 5;

typedef uint64_t Words __attribute__((vector_size(16)));

// Reads every byte. The sum keeps the compiler from removing the reads.
uint64_t sum(const uint8_t* data) {
  constexpr uint64_t kChains = 8;
  Words sums[kChains] = {};
  for (uint64_t i = 0; i < kPiece; i += kChains * sizeof(Words)) {
    for (uint64_t c = 0; c < kChains; ++c) {
      Words words;
      std::memcpy(&words, data + i + c * sizeof(Words), sizeof words);
      sums[c] += words;
    }
  }
  Words total = {};
  for (const Words& words : sums) total += words;
  return total[0] + total[1];
}

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
#elif defined(_WIN32)
  // The name is in leaves 0x80000002 to 0x80000004, 16 bytes each.
  unsigned words[13] = {};
  bool is_known = true;
  for (unsigned i = 0; i < 3; ++i) {
    unsigned* to = words + 4 * i;
    is_known &= __get_cpuid(0x80000002 + i, to, to + 1, to + 2, to + 3) != 0;
  }
  if (is_known) return reinterpret_cast<const char*>(words);
#endif
#if defined(__aarch64__)
  return "aarch64";
#elif defined(__x86_64__)
  return "x86-64";
#else
  return "unknown processor";
#endif
}

uint32_t usable_cores([[maybe_unused]] const std::vector<NumaNode>& nodes) {
#if defined(__linux__)
  const double quota = std::ceil(cgroup_cpus());
  uint32_t cores = 0;
  for (const NumaNode& node : nodes) cores += node.n_cores;
  if (cores == 0) cores = hardware_threads();
  return quota < cores ? static_cast<uint32_t>(quota) : cores;
#elif defined(__APPLE__)
  // Efficiency cores would delay the others at every barrier.
  return static_cast<uint32_t>(sysctl_number<int32_t>(
      "hw.perflevel0.physicalcpu",
      sysctl_number<int32_t>("hw.physicalcpu", static_cast<int32_t>(hardware_threads()))));
#elif defined(_WIN32)
  const uint32_t cores = allowed_cores();
  return cores > 0 ? cores : hardware_threads();
#else
  return hardware_threads();
#endif
}

uint64_t read_bandwidth(ThreadPool& pool) {
  const Memory memory(kPieces * kPiece);
  // Memory that was never written maps to a single page of zeros.
  pool.run(kPieces, [&](uint32_t i, uint32_t) {
    std::memset(memory.data() + i * kPiece, static_cast<int>(i + 1), kPiece);
  });
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    pool.run(kPieces, [&](uint32_t i, uint32_t) { sink += sum(memory.data() + i * kPiece); });
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(memory.bytes()) / time.count());
  }
  return static_cast<uint64_t>(best);
}

}  // namespace forge::cpu
