// Runs random jobs on random pools of threads and checks what thread_pool.h promises: each index is
// computed once, by a thread of its node where the job says so, and a failure of any thread ends
// its job alone: thread_pool_program SEED

#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>

#include "../../csrc/cpu/host/thread_pool.h"

using namespace forge::cpu;

namespace {

std::mt19937 numbers;

uint32_t number(uint32_t low, uint32_t high) {
  return low + static_cast<uint32_t>(numbers() % (high - low + 1));
}

[[noreturn]] void fail(const std::string& what) {
  std::printf("%s\n", what.c_str());
  std::exit(1);
}

void check(bool is_true, const char* what) {
  if (!is_true) fail(what);
}

class Job {
 public:
  Job(ThreadPool& pool, uint32_t count) : pool_(pool), times_(count) {}

  // `failing`: the index that fails; the count or more for none.
  void run(uint32_t failing) {
    std::string failure;
    const auto body = [&](uint32_t index, uint32_t thread) {
      check(thread < pool_.n_threads(), "a thread past the last");
      check(!at_home_ || home_of(index) == node_of(thread), "a thread away from its node");
      ++times_[index];
      if (index == failing) throw std::runtime_error("index " + std::to_string(index));
    };
    try {
      start(body);
    } catch (const std::runtime_error& error) {
      failure = error.what();
    }
    const bool fails = failing < times_.size();
    check(failure == (fails ? "index " + std::to_string(failing) : ""), "a failure is lost");
    for (const std::atomic<uint32_t>& times : times_) {
      check(fails ? times <= 1 : times == 1, "an index is computed twice, or never");
    }
  }

 private:
  template <class Body>
  void start(const Body& body) {
    const auto count = static_cast<uint32_t>(times_.size());
    const uint32_t kind = number(0, 2);
    if (kind == 0) return pool_.run(count, body);
    for (uint32_t node = 0, end = 0; node < pool_.n_nodes(); ++node) {
      ends_.push_back(end = node + 1 == pool_.n_nodes() ? count : number(end, count));
    }
    at_home_ = kind == 2;
    if (at_home_) return pool_.run_at_home(ends_, body);
    pool_.run_divided(ends_, body);
  }

  uint32_t home_of(uint32_t index) const {
    uint32_t node = 0;
    while (index >= ends_[node]) ++node;
    return node;
  }

  uint32_t node_of(uint32_t thread) const {
    uint32_t node = 0;
    for (; thread >= pool_.nodes()[node].n_threads; ++node) thread -= pool_.nodes()[node].n_threads;
    return node;
  }

  ThreadPool& pool_;
  std::vector<std::atomic<uint32_t>> times_;
  std::vector<uint32_t> ends_;
  bool at_home_ = false;
};

}  // namespace

int main(int, char** argv) {
  numbers.seed(static_cast<uint32_t>(std::strtoul(argv[1], nullptr, 10)));
  for (int round = 0; round < 20; ++round) {
    std::vector<NodeThreads> nodes(number(1, 3));
    for (NodeThreads& node : nodes) node.n_threads = number(1, 3);
    ThreadPool pool(nodes);
    uint64_t before = 0;
    for (uint32_t node = 0; node <= pool.n_nodes(); ++node) {
      const uint64_t first = pool.first_of(node, 100);
      check(node == 0 ? first == 0 : first > before, "a node without a share");
      before = first;
    }
    check(before == 100, "shares that are not all");
    for (int i = 0; i < 100; ++i) {
      const uint32_t count = number(0, 40);
      Job(pool, count).run(number(0, 2 * count + 1));
    }
  }
  std::puts("agrees");
}
