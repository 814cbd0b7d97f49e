#pragma once

// NUMA nodes: parts of a machine whose cores read their own memory faster than that of others.

#include <cstdint>
#include <string>
#include <vector>

namespace forge::cpu {

// A node with the cores that this process may use.
struct NumaNode {
  uint32_t id;  // as the system numbers nodes
  uint32_t n_cores;
  std::vector<uint32_t> cpus;  // the hardware threads of the cores, ascending
};

// Threads that compute on one node.
struct NodeThreads {
  uint32_t n_threads;
  std::vector<uint32_t> cpus;  // that they may run on; empty: wherever the system likes
};

// Returns the CPUs that this thread may run on, ascending; none if the system does not tell.
std::vector<uint32_t> allowed_cpus();

// Returns the nodes with cores among the allowed CPUs, from the files of /sys/devices/system or a
// folder like it. One node with a core for each CPU if the files do not tell more.
std::vector<NumaNode> read_nodes(const std::string& root, const std::vector<uint32_t>& allowed);

// Returns the nodes of this machine.
std::vector<NumaNode> numa_nodes();

// Divides threads in proportion to the cores of nodes, so that all of them read at full speed.
// Nodes without a thread are left out.
std::vector<NodeThreads> divide_threads(const std::vector<NumaNode>& nodes, uint32_t n_threads);

// Returns the first of `count` things that belongs to a node, if each node has a share of them in
// proportion to its threads; `count` for the node after the last.
uint64_t first_of(const std::vector<NodeThreads>& nodes, uint32_t node, uint64_t count);

// Describes the threads of nodes in one line, for people.
std::string describe_nodes(const std::vector<NodeThreads>& nodes);

// Keeps the calling thread on some CPUs, none meaning all, and restores its CPUs at the end.
class PinnedThread {
 public:
  explicit PinnedThread(const std::vector<uint32_t>& cpus);
  ~PinnedThread();
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

 private:
  std::vector<uint32_t> before_;
};

}  // namespace forge::cpu
