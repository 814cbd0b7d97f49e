// Prints the NUMA nodes that a folder like /sys/devices/system describes, and the division of
// threads among them: numa_program FOLDER THREADS CPU...
// Without arguments it prints the CPUs that it may run on.

#include <cstdio>
#include <cstdlib>

#include "../../csrc/cpu/host/topology.h"

using namespace forge::cpu;

int main(int argc, char** argv) {
  if (argc == 1) {
    for (const uint32_t cpu : allowed_cpus()) std::printf("%u\n", cpu);
    return 0;
  }
  std::vector<uint32_t> allowed;
  for (int i = 3; i < argc; ++i) allowed.push_back(static_cast<uint32_t>(std::atoi(argv[i])));
  const std::vector<NumaNode> nodes = read_nodes(argv[1], allowed);
  std::printf("{\"nodes\": [");
  for (const NumaNode& node : nodes) {
    std::printf("%s[%u, %u, %zu]", &node == nodes.data() ? "" : ", ", node.id, node.n_cores,
                node.cpus.size());
  }
  const auto divided = divide_threads(nodes, static_cast<uint32_t>(std::atoi(argv[2])));
  std::printf("], \"threads\": [");
  for (const NodeThreads& node : divided) {
    std::printf("%s%u", &node == divided.data() ? "" : ", ", node.n_threads);
  }
  std::printf("], \"text\": \"%s\"}\n", describe_nodes(divided).c_str());
}
