#include "topology.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>

#if defined(__linux__)
#include <sched.h>
#endif

namespace forge::cpu {

namespace {

#if defined(__linux__)

// More than any Linux supports (8,192 CPUs).
constexpr uint32_t kMostCpus = 1 << 14;

// The CPUs that a thread may run on, as the system takes them.
class CpuSet {
 public:
  CpuSet() : set_(CPU_ALLOC(kMostCpus)) { CPU_ZERO_S(kBytes, set_); }
  ~CpuSet() { CPU_FREE(set_); }
  CpuSet(const CpuSet&) = delete;
  CpuSet& operator=(const CpuSet&) = delete;

  void add(uint32_t cpu) { CPU_SET_S(cpu, kBytes, set_); }
  bool has(uint32_t cpu) const { return CPU_ISSET_S(cpu, kBytes, set_); }
  bool read() { return sched_getaffinity(0, kBytes, set_) == 0; }
  // Refused if a container has taken the CPUs away meanwhile: the thread then runs anywhere.
  void apply() const { sched_setaffinity(0, kBytes, set_); }

 private:
  static constexpr size_t kBytes = CPU_ALLOC_SIZE(kMostCpus);
  cpu_set_t* set_;
};

#endif

void pin(const std::vector<uint32_t>& cpus) {
#if defined(__linux__)
  CpuSet set;
  for (const uint32_t cpu : cpus) set.add(cpu);
  set.apply();
#else
  (void)cpus;
#endif
}

// Returns the first line of a file; empty without the file.
std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Parses a list such as "0-3,8", as the kernel writes it.
std::vector<uint32_t> parse_list(const std::string& text) {
  std::vector<uint32_t> numbers;
  std::istringstream stream(text);
  for (std::string range; std::getline(stream, range, ',');) {
    std::istringstream ends(range);
    uint32_t first = 0, last = 0;
    char dash = 0;
    if (!(ends >> first)) continue;
    if (!(ends >> dash >> last)) last = first;
    for (uint32_t i = first; i <= last; ++i) numbers.push_back(i);
  }
  return numbers;
}

// Returns ascending numbers as such a list.
std::string list_of(const std::vector<uint32_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const uint32_t first = numbers[i];
    while (i + 1 < numbers.size() && numbers[i + 1] == numbers[i] + 1) ++i;
    if (!text.empty()) text += ',';
    text.append(std::to_string(first));
    if (numbers[i] > first) text.append("-").append(std::to_string(numbers[i]));
  }
  return text;
}

// Returns the number of cores that some CPUs belong to. CPUs of one core have the same siblings.
uint32_t count_cores(const std::string& root, const std::vector<uint32_t>& cpus) {
  std::set<std::string> cores;
  for (const uint32_t cpu : cpus) {
    const std::string name = std::to_string(cpu);
    const std::string siblings =
        line_of(root + "/cpu/cpu" + name + "/topology/thread_siblings_list");
    cores.insert(siblings.empty() ? name : siblings);
  }
  return static_cast<uint32_t>(cores.size());
}

}  // namespace

std::vector<uint32_t> allowed_cpus() {
  std::vector<uint32_t> cpus;
#if defined(__linux__)
  CpuSet set;
  if (!set.read()) return cpus;
  for (uint32_t cpu = 0; cpu < kMostCpus; ++cpu) {
    if (set.has(cpu)) cpus.push_back(cpu);
  }
#endif
  return cpus;
}

std::vector<NumaNode> read_nodes(const std::string& root, const std::vector<uint32_t>& allowed) {
  std::vector<NumaNode> nodes;
  size_t found = 0;
  for (const uint32_t id : parse_list(line_of(root + "/node/online"))) {
    NumaNode node{id, 0, {}};
    const std::string cpus = line_of(root + "/node/node" + std::to_string(id) + "/cpulist");
    for (const uint32_t cpu : parse_list(cpus)) {
      if (std::ranges::binary_search(allowed, cpu)) node.cpus.push_back(cpu);
    }
    if (node.cpus.empty()) continue;  // a node of memory alone, or of others' CPUs
    node.n_cores = count_cores(root, node.cpus);
    found += node.cpus.size();
    nodes.push_back(std::move(node));
  }
  if (found == allowed.size()) return nodes;
  return {{0, count_cores(root, allowed), allowed}};
}

std::vector<NumaNode> numa_nodes() { return read_nodes("/sys/devices/system", allowed_cpus()); }

std::vector<NodeThreads> divide_threads(const std::vector<NumaNode>& nodes, uint32_t n_threads) {
  uint64_t n_cores = 0, before = 0;
  for (const NumaNode& node : nodes) n_cores += node.n_cores;
  std::vector<NodeThreads> divided;
  uint64_t first = 0;
  for (const NumaNode& node : nodes) {
    before += node.n_cores;
    const uint64_t end = (before * n_threads + n_cores / 2) / n_cores;
    if (end > first) divided.push_back({static_cast<uint32_t>(end - first), node.cpus});
    first = end;
  }
  // Nothing is gained by keeping threads together that have the machine to themselves.
  if (divided.size() <= 1) return {{n_threads, {}}};
  return divided;
}

uint64_t first_of(const std::vector<NodeThreads>& nodes, uint32_t node, uint64_t count) {
  uint64_t before = 0, all = 0;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    if (i < node) before += nodes[i].n_threads;
    all += nodes[i].n_threads;
  }
  return count * before / all;
}

std::string describe_nodes(const std::vector<NodeThreads>& nodes) {
  if (nodes.size() == 1) return "1 NUMA node";
  std::string text = std::to_string(nodes.size());
  text += " NUMA nodes:";
  for (const NodeThreads& node : nodes) {
    if (&node != &nodes.front()) text += ";";
    text.append(" ").append(std::to_string(node.n_threads));
    text += node.n_threads == 1 ? " thread" : " threads";
    if (!node.cpus.empty()) text.append(" on CPUs ").append(list_of(node.cpus));
  }
  return text;
}

PinnedThread::PinnedThread(const std::vector<uint32_t>& cpus) {
  if (cpus.empty()) return;
  before_ = allowed_cpus();
  pin(cpus);
}

PinnedThread::~PinnedThread() {
  if (!before_.empty()) pin(before_);
}

}  // namespace forge::cpu
