// The jobs of a decoded token on a machine that exists on paper only, with the division of work of
// the CPU device.
//
//   numa_model job
//     measures threads of this machine; prints {"job_ns"}
//   numa_model simulate MACHINE JOB...
//     prints {"time_us", "reading_us", "local", "remote"} of all jobs, where a machine is
//       THREADS CORES_PER_NODE NODES LINE_NS REMOTE_LINE_NS THREAD_GBS NODE_GBS LINK_GBS
//     and a job, which is run COUNT times,
//       COUNT plain ROWS ROW_BYTES X_BYTES
//       COUNT gated WIDTH ROW_BYTES X_BYTES
//       COUNT attention KV_HEADS SPLITS SPLIT_BYTES

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "../../csrc/cpu/host/thread_pool.h"
#include "../../csrc/cpu/operations/division.h"

using namespace forge::cpu;

namespace {

struct Machine {
  std::vector<NodeThreads> nodes;
  uint32_t n_threads = 0;
  double line_ns = 0;         // to change a word that another thread of the node has changed
  double remote_line_ns = 0;  // of another node
  double thread_rate = 0;     // bytes a nanosecond that a thread can read
  double node_rate = 0;       // that all threads can read from the memory of a node
  double link_rate = 0;       // that all threads can read from another node
};

// Bytes of the tasks of a job, for each node in the order in which its threads take them.
struct Job {
  std::vector<std::vector<double>> tasks;
  double x_bytes = 0;  // read by every thread that has a task
};

struct Times {
  double ns = 0;
  double reading_ns = 0;  // if all threads read at full speed all the time
  double local = 0;
  double remote = 0;
};

// Calls add(rows of the node) for each node of a machine.
template <class Add>
void divide_rows(const Machine& machine, uint64_t rows, Add&& add) {
  const uint64_t n = (rows + kRowsTogether - 1) / kRowsTogether;
  for (uint32_t node = 0; node < machine.nodes.size(); ++node) {
    const uint64_t first = first_of(machine.nodes, node, n) * kRowsTogether;
    add(node, std::min(rows, first_of(machine.nodes, node + 1, n) * kRowsTogether) - first);
  }
}

Job plain_job(const Machine& machine, uint64_t rows, uint64_t row_bytes) {
  Job job;
  divide_rows(machine, rows, [&](uint32_t node, uint64_t left) {
    std::vector<double>& tasks = job.tasks.emplace_back();
    while (left > 0) {
      const uint64_t most = task_rows(left * row_bytes, row_bytes, machine.nodes[node].n_threads);
      const uint64_t n = std::min(left, most);
      tasks.push_back(static_cast<double>(n * row_bytes));
      left -= n;
    }
  });
  return job;
}

Job gated_job(const Machine& machine, uint64_t width, uint64_t row_bytes) {
  Job job;
  divide_rows(machine, width, [&](uint32_t node, uint64_t left) {
    std::vector<double>& tasks = job.tasks.emplace_back();
    while (left > 0) {
      const auto most = gated_task_rows(static_cast<uint32_t>(left), row_bytes,
                                        machine.nodes[node].n_threads);
      const uint64_t n = std::min<uint64_t>(left, most);
      tasks.push_back(static_cast<double>(2 * n * row_bytes));
      left -= n;
    }
  });
  return job;
}

Job attention_job(const Machine& machine, uint32_t kv_heads, uint32_t n_splits, double bytes) {
  Job job;
  for (uint32_t node = 0; node < machine.nodes.size(); ++node) {
    const uint64_t heads = first_of(machine.nodes, node + 1, kv_heads) -
                           first_of(machine.nodes, node, kv_heads);
    const auto all = static_cast<uint32_t>(heads * n_splits);
    const bool is_whole = n_splits <= most_whole_splits(all, machine.nodes[node].n_threads);
    job.tasks.emplace_back(is_whole ? heads : all, is_whole ? n_splits * bytes : bytes);
  }
  return job;
}

// A thread of a simulated job.
struct Worker {
  uint32_t home;
  uint32_t tried = 0;  // number of nodes that have no tasks for it
  uint32_t from = 0;   // the node whose task it has
  double ready = 0;    // when it begins to read
  double left = 0;     // bytes of its task
  bool reads = false;
  bool is_done = false;
};

// Follows a job from event to event; between two events all rates are constant.
Times simulate(const Machine& machine, const Job& job) {
  const auto n_nodes = static_cast<uint32_t>(machine.nodes.size());
  // When the words of a node are free: the state, which threads join and leave by, and the index of
  // the next task.
  std::vector<double> state_free(n_nodes), next_free(n_nodes);
  std::vector<size_t> next(n_nodes);
  std::vector<Worker> workers;
  Times times;
  const auto change = [&](double& free, double now, bool is_local) {
    return free = std::max(free, now) + (is_local ? machine.line_ns : machine.remote_line_ns);
  };
  // The caller opens the job on each node; then the threads join one by one.
  double opened = 0;
  for (uint32_t node = 0; node < n_nodes; ++node) {
    opened += node == 0 ? machine.line_ns : machine.remote_line_ns;
    state_free[node] = opened;
  }
  for (uint32_t node = 0; node < n_nodes; ++node) {
    for (uint32_t i = 0; i < machine.nodes[node].n_threads; ++i) {
      const bool is_caller = workers.empty();
      workers.push_back({.home = node});
      workers.back().ready = is_caller ? opened : change(state_free[node], 0, true);
    }
  }
  double now = 0;
  // Gives a thread a task of its node, or of another that has more tasks than threads, see
  // ThreadPool::work.
  const auto take = [&](Worker& worker) {
    for (; worker.tried < n_nodes; ++worker.tried) {
      const uint32_t node = worker.from = (worker.home + worker.tried) % n_nodes;
      const bool is_home = node == worker.home;
      const size_t kept = is_home ? 0 : machine.nodes[node].n_threads;
      worker.ready = std::max(now, worker.ready);
      if (next[node] + kept >= job.tasks[node].size()) {
        worker.ready += is_home ? machine.line_ns : machine.remote_line_ns;
        continue;
      }
      worker.ready = change(next_free[node], worker.ready, is_home);
      worker.left = job.tasks[node][next[node]++];
      (is_home ? times.local : times.remote) += worker.left;
      return;
    }
    worker.is_done = true;
  };
  std::vector<uint32_t> readers(n_nodes), guests(n_nodes);
  const auto rate = [&](const Worker& worker) {
    const double share = machine.node_rate / readers[worker.from];
    const double alone = std::min(machine.thread_rate, share);
    if (worker.from == worker.home) return alone;
    return std::min(alone, machine.link_rate / guests[worker.from]);
  };
  uint64_t n_with_tasks = 0;
  for (Worker& worker : workers) {
    take(worker);
    n_with_tasks += !worker.is_done;
  }
  for (;;) {
    std::ranges::fill(readers, 0);
    std::ranges::fill(guests, 0);
    double until = 1e300;
    for (Worker& worker : workers) {
      if (worker.is_done) continue;
      worker.reads = worker.ready <= now;
      if (!worker.reads) until = std::min(until, worker.ready);
      readers[worker.from] += worker.reads;
      guests[worker.from] += worker.reads && worker.from != worker.home;
    }
    for (const Worker& worker : workers) {
      if (worker.is_done || !worker.reads) continue;
      until = std::min(until, now + worker.left / rate(worker));
    }
    if (until == 1e300) break;
    const double step = until - now;
    for (Worker& worker : workers) {
      if (worker.is_done || !worker.reads) continue;
      worker.left -= step * rate(worker);
    }
    now = until;
    for (Worker& worker : workers) {
      if (worker.is_done || !worker.reads || worker.left > 1e-6) continue;
      worker.ready = now;
      take(worker);
    }
  }
  times.ns = now;
  for (const Worker& worker : workers) {
    if (&worker == &workers.front()) continue;
    times.ns = std::max(times.ns, change(state_free[worker.home], worker.ready, true));
  }
  // The caller closes the job on each node.
  times.ns += machine.line_ns + (n_nodes - 1) * machine.remote_line_ns;
  const double x_bytes = job.x_bytes * static_cast<double>(n_with_tasks);
  times.local += x_bytes / n_nodes;
  times.remote += x_bytes - x_bytes / n_nodes;
  double bytes = 0;
  for (const auto& tasks : job.tasks) {
    for (const double task : tasks) bytes += task;
  }
  times.reading_ns = bytes / std::min(machine.n_threads * machine.thread_rate,
                                      n_nodes * machine.node_rate);
  return times;
}

// Returns nanoseconds of a job of two threads that wait for each other and do nothing else: the
// least of several measurements, as others that use the processor only add to them.
double measure_job() {
  constexpr uint32_t kRounds = 50, kJobs = 1'000;
  ThreadPool pool(std::vector<NodeThreads>{{2, {}}});
  double least = 1e300;
  for (uint32_t round = 0; round < kRounds; ++round) {
    std::atomic<uint32_t> n_here{0};
    const auto start = std::chrono::steady_clock::now();
    for (uint32_t i = 0; i < kJobs; ++i) {
      pool.run(2, [&](uint32_t, uint32_t) {
        n_here.fetch_add(1, std::memory_order_relaxed);
        while (n_here.load(std::memory_order_relaxed) < 2 * (i + 1)) {}
      });
    }
    const std::chrono::duration<double, std::nano> elapsed =
        std::chrono::steady_clock::now() - start;
    least = std::min(least, elapsed.count() / kJobs);
  }
  return least;
}

Machine parse_machine(const std::string& text) {
  uint32_t n_threads = 0, cores = 0, n_nodes = 0;
  Machine machine;
  std::istringstream(text) >> n_threads >> cores >> n_nodes >> machine.line_ns >>
      machine.remote_line_ns >> machine.thread_rate >> machine.node_rate >> machine.link_rate;
  std::vector<NumaNode> nodes;
  for (uint32_t i = 0; i < n_nodes; ++i) nodes.push_back({i, cores, {}});
  machine.nodes = divide_threads(nodes, n_threads);
  machine.n_threads = n_threads;
  return machine;
}

// Returns the job of a text, and how often it is run.
std::pair<Job, double> parse_job(const Machine& machine, const std::string& text) {
  double count = 0, bytes = 0;
  std::string kind;
  uint32_t n = 0, second = 0;
  std::istringstream(text) >> count >> kind >> n >> second >> bytes;
  if (kind == "attention") return {attention_job(machine, n, second, bytes), count};
  Job job = kind == "gated" ? gated_job(machine, n, second) : plain_job(machine, n, second);
  job.x_bytes = bytes;
  return {job, count};
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args == std::vector<std::string>{"job"}) {
    std::printf("{\"job_ns\": %.1f}\n", measure_job());
    return 0;
  }
  if (args.size() < 3 || args[0] != "simulate") return 2;
  const Machine machine = parse_machine(args[1]);
  Times all;
  for (size_t i = 2; i < args.size(); ++i) {
    const auto [job, count] = parse_job(machine, args[i]);
    const Times times = simulate(machine, job);
    all.ns += count * times.ns;
    all.reading_ns += count * times.reading_ns;
    all.local += count * times.local;
    all.remote += count * times.remote;
  }
  std::printf("{\"time_us\": %.3f, \"reading_us\": %.3f, \"local\": %.0f, \"remote\": %.0f}\n",
              all.ns / 1e3, all.reading_ns / 1e3, all.local, all.remote);
  return 0;
}
