#include "block.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>

#include "fiber.h"

namespace emulator {

namespace {

constexpr uint32_t kWarpLanes = 32;
constexpr int kPoison = 0xff;

struct AsyncCopy {
  void* to;
  const void* from;
  size_t bytes;
  bool valid;
};

struct Place {
  const char* file = "";
  int line = 0;
};

}  // namespace

struct Thread {
  Fiber fiber;
  Position position;
  uint32_t number = 0;
  bool finished = false;
  const char* waits_for = nullptr;  // null: can run
  Place place;
  std::vector<AsyncCopy> open_copies;
  std::deque<std::vector<AsyncCopy>> copy_groups;
};

namespace {

// Lanes of a warp that wait for each other.
struct Meeting {
  uint32_t mask = 0, arrived = 0;
  WarpOp op = WarpOp::sync;
  void* arguments[kWarpLanes];
  Thread* waiting[kWarpLanes];
};

struct Warp {
  std::vector<Meeting> meetings;
};

struct FreeBytes {
  void operator()(void* memory) const { std::free(memory); }
};
using Bytes = std::unique_ptr<void, FreeBytes>;

// Exactly `bytes` long, so that AddressSanitizer sees the end.
Bytes poisoned(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 1024, bytes) != 0) std::abort();
  std::memset(memory, kPoison, bytes);
  return Bytes(memory);
}

struct Block {
  std::vector<std::unique_ptr<Thread>> threads;  // kept from block to block
  std::vector<Warp> warps;
  std::deque<uint32_t> ready;
  uint32_t live = 0;
  std::vector<Thread*> at_barrier;
  std::map<const void*, Bytes> shared;
  Bytes dynamic;
  size_t dynamic_bytes = 0;
  size_t shared_bytes = 0, most_shared = 0;
  uint64_t serial = 0;
  const std::function<void()>* thread_function = nullptr;
  uint64_t random = 0;
  char barrier_tag = 0, launch_tag = 0, end_tag = 0;
};

Block block;
Thread* current = nullptr;
uint64_t order_seed = 0;
bool (*idle_work)() = nullptr;

void suspend(const char* reason) {
  current->waits_for = reason;
  current->fiber.yield(false);
}

void wake(Thread& thread) {
  thread.waits_for = nullptr;
  block.ready.push_back(thread.number);
}

void open_barrier() {
  for (Thread* thread : block.at_barrier) wake(*thread);
  block.at_barrier.clear();
}

void thread_main() {
  races::acquire(&block.launch_tag);
  (*block.thread_function)();
  races::release(&block.end_tag);
  races::Ignored ignored;
  Thread& self = *current;
  if (!self.open_copies.empty() || !self.copy_groups.empty()) {
    fail("the thread ends with asynchronous copies in flight");
  }
  self.finished = true;
  --block.live;
  if (block.live > 0 && block.at_barrier.size() == block.live) open_barrier();
}

uint32_t next_ready() {
  if (order_seed != 0) {
    block.random = block.random * 6364136223846793005u + 1442695040888963407u;
    std::swap(block.ready.front(), block.ready[(block.random >> 33) % block.ready.size()]);
  }
  const uint32_t number = block.ready.front();
  block.ready.pop_front();
  return number;
}

[[noreturn]] void report_deadlock() {
  uint32_t shown = 0;
  for (const auto& thread : block.threads) {
    if (thread->finished || !thread->waits_for || ++shown > 8) continue;
    std::fprintf(stderr, "  thread %u waits for %s at %s:%d\n", thread->number, thread->waits_for,
                 thread->place.file, thread->place.line);
  }
  current = nullptr;
  fail("deadlock: %u threads wait for others that never come", block.live);
}

void run_block(const Launch& launch, Dim3 at) {
  races::Ignored ignored;
  const uint32_t n = launch.block.x * launch.block.y * launch.block.z;
  while (block.threads.size() < n) block.threads.push_back(std::make_unique<Thread>());
  block.warps.assign((n + kWarpLanes - 1) / kWarpLanes, Warp());
  block.ready.clear();
  block.at_barrier.clear();
  block.shared.clear();
  block.dynamic = launch.dynamic_shared > 0 ? poisoned(launch.dynamic_shared) : nullptr;
  block.dynamic_bytes = block.shared_bytes = launch.dynamic_shared;
  block.most_shared = launch.most_shared;
  ++block.serial;
  block.live = n;
  for (uint32_t i = 0; i < n; ++i) {
    Thread& thread = *block.threads[i];
    const Dim3 size = launch.block;
    thread.number = i;
    thread.finished = false;
    thread.waits_for = nullptr;
    thread.position = {{i % size.x, i / size.x % size.y, i / size.x / size.y},
                       at, size, launch.grid, i % kWarpLanes};
    block.ready.push_back(i);
  }
  // Threads of one block only: those that an earlier, larger block left behind are finished.
  for (size_t i = n; i < block.threads.size(); ++i) block.threads[i]->finished = true;
  std::vector<bool> started(n, false);
  while (block.live > 0) {
    if (block.ready.empty() && !(idle_work != nullptr && idle_work())) report_deadlock();
    if (block.ready.empty()) continue;
    const uint32_t number = next_ready();
    current = block.threads[number].get();
    if (!started[number]) current->fiber.start(thread_main);
    started[number] = true;
    current->fiber.resume();
  }
  current = nullptr;
}

}  // namespace

void run_grid(const Launch& launch, const std::function<void()>& thread) {
  const uint64_t n = uint64_t{launch.block.x} * launch.block.y * launch.block.z;
  if (n == 0 || n > 1024) fail("a block of %llu threads", static_cast<unsigned long long>(n));
  block.thread_function = &thread;
  block.random = order_seed;
  races::release(&block.launch_tag);
  for (unsigned z = 0; z < launch.grid.z; ++z) {
    for (unsigned y = 0; y < launch.grid.y; ++y) {
      for (unsigned x = 0; x < launch.grid.x; ++x) run_block(launch, {x, y, z});
    }
  }
  races::acquire(&block.end_tag);
}

void set_order_seed(uint64_t seed) { order_seed = seed; }

const Position& position() { return current->position; }

void wait_for_block(const char* file, int line) {
  races::release(&block.barrier_tag);
  {
    races::Ignored ignored;
    current->place = {file, line};
    for (const Thread* other : block.at_barrier) {
      if (other->place.line != line || std::strcmp(other->place.file, file) != 0) {
        fail("threads meet at different barriers: %s:%d and %s:%d", file, line,
             other->place.file, other->place.line);
      }
    }
    if (block.at_barrier.size() + 1 == block.live) {
      open_barrier();
    } else {
      block.at_barrier.push_back(current);
      suspend("__syncthreads");
    }
  }
  races::acquire(&block.barrier_tag);
}

void collective(uint32_t mask, WarpOp op, void* argument,
                void (*perform)(void* const* arguments, uint32_t mask), const char* file, int line,
                bool orders_memory) {
  Warp& warp = block.warps[current->number / kWarpLanes];
  if (orders_memory) races::release(&warp);
  {
    races::Ignored ignored;
    const uint32_t lane = current->number % kWarpLanes;
    current->place = {file, line};
    if ((mask >> lane & 1) == 0) fail("%s:%d: the lane is not in its own mask", file, line);
    Meeting* meeting = nullptr;
    for (Meeting& candidate : warp.meetings) {
      if (candidate.arrived == 0 || (candidate.mask & mask) == 0) continue;
      if (candidate.mask != mask || candidate.op != op) {
        fail("%s:%d: lanes of a warp meet in different operations or with different masks", file,
             line);
      }
      meeting = &candidate;
    }
    if (!meeting) {
      for (Meeting& candidate : warp.meetings) {
        if (candidate.arrived == 0) meeting = &candidate;
      }
    }
    if (!meeting) meeting = &warp.meetings.emplace_back();
    const size_t index = static_cast<size_t>(meeting - warp.meetings.data());
    meeting->mask = mask;
    meeting->op = op;
    meeting->arguments[lane] = argument;
    meeting->waiting[lane] = current;
    meeting->arrived |= 1u << lane;
    if (meeting->arrived == mask) {
      if (perform) perform(meeting->arguments, mask);
      meeting = &warp.meetings[index];
      meeting->arrived = 0;
      for (uint32_t i = 0; i < kWarpLanes; ++i) {
        if ((mask >> i & 1) != 0 && i != lane) wake(*meeting->waiting[i]);
      }
    } else {
      suspend("the other lanes of its warp");
    }
  }
  if (orders_memory) races::acquire(&warp);
}

void* shared_array(const void* declaration, size_t bytes) {
  races::Ignored ignored;
  Bytes& memory = block.shared[declaration];
  if (!memory) {
    memory = poisoned(bytes);
    block.shared_bytes += bytes;
    if (block.shared_bytes > block.most_shared) {
      fail("%zu bytes of shared memory, of which a block has %zu", block.shared_bytes,
           block.most_shared);
    }
  }
  return memory.get();
}

void* dynamic_shared() { return block.dynamic.get(); }

size_t dynamic_shared_bytes() { return block.dynamic_bytes; }

uint64_t block_serial() { return block.serial; }

uint32_t thread_number() { return current->number; }

void park(const char* reason) {
  races::Ignored ignored;
  current->place = {reason, 0};
  suspend(reason);
}

void unpark(uint32_t thread) { wake(*block.threads[thread]); }

void set_idle(bool (*idle)()) { idle_work = idle; }

void copy_async(void* to, const void* from, size_t bytes, bool valid) {
  const auto misaligned = [&](const void* p) { return reinterpret_cast<uintptr_t>(p) % bytes; };
  if (misaligned(to) || (valid && misaligned(from))) fail("a misaligned asynchronous copy");
  races::write(to, bytes);
  if (valid) races::read(from, bytes);
  std::memset(to, kPoison, bytes);
  races::Ignored ignored;
  current->open_copies.push_back({to, from, bytes, valid});
}

void commit_async_copies() {
  races::Ignored ignored;
  current->copy_groups.push_back(std::move(current->open_copies));
  current->open_copies.clear();
}

void wait_async_copies(size_t groups_left) {
  while (current->copy_groups.size() > groups_left) {
    std::vector<AsyncCopy> group;
    {
      races::Ignored ignored;
      group.swap(current->copy_groups.front());
      current->copy_groups.pop_front();
    }
    for (const AsyncCopy& copy : group) {
      if (copy.valid) {
        std::memcpy(copy.to, copy.from, copy.bytes);
      } else {
        std::memset(copy.to, 0, copy.bytes);
      }
    }
  }
}

void fail(const char* format, ...) {
  std::fprintf(stderr, "emulator: ");
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  if (current) {
    const Position& p = current->position;
    std::fprintf(stderr, " (block %u, %u, %u; thread %u)", p.block.x, p.block.y, p.block.z,
                 current->number);
  }
  std::fputc('\n', stderr);
  std::abort();
}

}  // namespace emulator
